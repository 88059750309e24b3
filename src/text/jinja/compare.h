// Equality and order of values, as Python has them. Where a template can ask for a comparison, it
// goes through the Runtime, which counts what it costs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/value.h"

namespace spry::jinja {

bool AreEqual(const Value& a, const Value& b);

// a < b; what Python does not order is an error.
Result<bool> IsLess(const Value& a, const Value& b);
Result<bool> IsLessOrEqual(const Value& a, const Value& b);

bool IsHashable(const Value& value);
// Some total order of all hashable values, in which equal ones are the same.
bool IsKeyBefore(const Value& a, const Value& b);

bool IsTrue(const Value& value);

// `item in container`.
Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

}  // namespace spry::jinja
