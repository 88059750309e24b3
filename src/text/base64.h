// Base64 with the standard alphabet.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace spry {

// Nothing when `text` is no base64. Padding may be missing.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace spry
