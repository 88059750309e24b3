// A logit and its id as one integer whose order is: larger value first, then lower id. Maxima of
// such integers do not depend on the order in which they are taken.
#pragma once

#include <cstdint>

#include "ops/math.h"

namespace spry::cuda {

// Unsigned numbers in the order of the floats; both zeros are one.
__device__ inline uint32_t OrderedKey(float value) {
  const uint32_t bits = BitsFromFloat(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float FloatFromKey(uint32_t key) {
  return FloatFromBits((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ inline uint64_t Pack(float value, int32_t id) {
  return uint64_t{OrderedKey(value)} << 32 | ~static_cast<uint32_t>(id);
}
__device__ inline int32_t PackedId(uint64_t packed) {
  return static_cast<int32_t>(~static_cast<uint32_t>(packed));
}
__device__ inline float PackedValue(uint64_t packed) {
  return FloatFromKey(static_cast<uint32_t>(packed >> 32));
}

}  // namespace spry::cuda
