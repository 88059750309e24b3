// The filters, tests and functions that templates know by name.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace spry::jinja {

struct Filter {
  std::string_view name;
  Result<Value> (*function)(Runtime& runtime, const Value& input, const Arguments& arguments);
};

struct Test {
  std::string_view name;
  Result<bool> (*function)(Runtime& runtime, const Value& input, const Arguments& arguments);
};

// Null for a name that does not exist.
const Filter* FindFilter(std::string_view name);
const Test* FindTest(std::string_view name);

// range, namespace, raise_exception ... by name.
const Dict& GlobalFunctions();

}  // namespace spry::jinja
