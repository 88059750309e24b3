// Pre-tokenizer patterns that several file formats name without spelling them out.
#pragma once

#include <string_view>

namespace spry {

// What ByteLevel(use_regex) cuts by: GPT-2's pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace spry
