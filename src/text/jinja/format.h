// Python's two ways to format: "%s" % values, and "{}".format(values).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace spry::jinja {

Status CheckFormatWidth(int64_t width);

// `values`: a tuple of them, a dict for %(name)s, or a single one.
Result<std::string> FormatWithPercent(Runtime& runtime, std::string_view format,
                                      const Value& values);

Result<std::string> FormatWithBraces(Runtime& runtime, std::string_view format,
                                     const Arguments& arguments);

}  // namespace spry::jinja
