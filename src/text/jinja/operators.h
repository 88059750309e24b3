// Arithmetic, joining, slices and lengths.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace spry::jinja {

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };

// Integers that do not fit in 64 bits are an error.
Result<Value> Apply(Runtime& runtime, BinaryOperator op, const Value& left, const Value& right);
Result<Value> Negative(const Value& value);
Result<Value> Positive(const Value& value);

// value[start:stop:step]; undefined or None parts are left out.
struct SliceBounds {
  Value start;
  Value stop;
  Value step;
};
Result<Value> Slice(Runtime& runtime, const Value& value, const SliceBounds& bounds);

// len(value).
Result<int64_t> LengthOf(const Value& value);

}  // namespace spry::jinja
