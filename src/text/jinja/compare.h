// Equality, order and hashes of values, as Python has them.
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
// Equal values have equal hashes. The value must be hashable.
size_t HashOf(const Value& value);

bool IsTrue(const Value& value);

// `item in container`.
Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

}  // namespace spry::jinja
