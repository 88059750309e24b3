#include "tensor/dtype.h"

#include <iterator>

#include "base/check.h"

namespace spry {

const DTypeTraits& Traits(DType dtype) {
  static constexpr DTypeTraits kTraits[] = {
      {"float32", 1, 4},  {"float16", 1, 2},    {"bfloat16", 1, 2}, {"int32", 1, 4},
      {"int64", 1, 8},    {"uint8", 1, 1},      {"q4_0", 32, 18},   {"q4_1", 32, 20},
      {"q8_0", 32, 34},   {"q5_0", 32, 22},     {"q5_1", 32, 24},   {"q2_k", 256, 84},
      {"q3_k", 256, 110}, {"q4_k", 256, 144},   {"q5_k", 256, 176}, {"q6_k", 256, 210},
      {"iq4_nl", 32, 18}, {"iq4_xs", 256, 136},
  };
  static_assert(std::size(kTraits) == kNumDTypes);
  return kTraits[static_cast<int>(dtype)];
}

int64_t RowBytes(DType dtype, int64_t elements) {
  const DTypeTraits& traits = Traits(dtype);
  CHECK(elements % traits.block_elements == 0);
  return elements / traits.block_elements * traits.block_bytes;
}

}  // namespace spry
