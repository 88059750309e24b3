// json.dumps, and JSON read into values.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace spry::jinja {

struct JsonStyle {
  bool ascii = false;                 // escape what is not
  std::optional<std::string> indent;  // none: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

Result<std::string> WriteJson(Runtime& runtime, const Value& value, const JsonStyle& style);

// The value of a JSON text; objects keep their order. Errors name `what` is read.
Result<Value> ReadJson(std::string_view json, std::string_view what);

}  // namespace spry::jinja
