// The methods of strings, lists, tuples, ranges and objects that templates may call.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/status.h"
#include "text/jinja/value.h"

namespace spry::jinja {

struct Method {
  std::string_view name;
  // Null: Python has it, templates cannot call it here.
  Result<Value> (*function)(Runtime& runtime, const Value& self, const Arguments& arguments);
};

// The method, bound to `value`; nothing when its type has none of that name. Methods that would
// change the value are undefined, with the reason.
std::optional<Value> FindMethod(const Value& value, std::string_view name);

std::span<const Method> TextMethods();

}  // namespace spry::jinja
