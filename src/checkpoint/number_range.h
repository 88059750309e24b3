// What a number from a file may be, both ends included.
#pragma once

#include <cstdint>

namespace spry {

struct IntegerRange {
  int64_t min;
  int64_t max;
};

struct NumberRange {
  double min;
  double max;
};

}  // namespace spry
