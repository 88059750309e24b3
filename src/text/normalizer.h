// Unicode normalisation form C, as the `tokenizers` library does it.
#pragma once

#include <string>
#include <string_view>

namespace spry {

// `text` is valid UTF-8. Linear in its length, whatever runs of marks it holds.
std::string NormalizeNfc(std::string_view text);

}  // namespace spry
