// The escapes of string literals: \n, \xHH, \uHHHH and so on, as Python reads them.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace spry::jinja {

Result<std::string> UnescapeText(std::string_view literal);

}  // namespace spry::jinja
