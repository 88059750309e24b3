// How one value is written: [[fill]align][sign][#][0][width][grouping][.precision][type].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace spry::jinja {

struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ =, 0: by type
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;  // , or _
  int64_t precision = -1;
  char type = 0;
};

Result<FormatSpec> ParseFormatSpec(std::string_view spec);

// format(value, spec), for numbers and texts.
Result<std::string> FormatValue(Runtime& runtime, const Value& value, const FormatSpec& spec);

}  // namespace spry::jinja
