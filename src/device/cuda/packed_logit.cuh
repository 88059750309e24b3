// A logit and its id as one integer whose order is: larger value first, then lower id. Maxima of
// such integers do not depend on the order in which they are taken.
#pragma once

#include <cstdint>

#include "ops/ordered_key.h"

namespace spry::cuda {

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
