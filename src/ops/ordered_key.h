// Logits as unsigned numbers in the same order, for selecting and comparing by integers: no order
// of operations can then matter. Both zeros are one key. Not for NaNs.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ops/math.h"

namespace spry {

SPRY_HOST_DEVICE inline uint32_t OrderedKey(float value) {
  const uint32_t bits = BitsFromFloat(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

SPRY_HOST_DEVICE inline float FloatFromKey(uint32_t key) {
  return FloatFromBits((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

}  // namespace spry
