// Marks and patterns that several file formats name without spelling them out.
#pragma once

#include <string_view>

namespace spry {

// What ByteLevel(use_regex) cuts by: GPT-2's pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// U+2581, which stands for a space in the pieces of SentencePiece.
inline constexpr std::string_view kSpaceMark = "\u2581";

}  // namespace spry
