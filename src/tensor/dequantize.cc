#include "tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/block_codes.h"
#include "tensor/float16.h"

namespace spry {
namespace {

void DequantizePlain(DType dtype, const std::byte* row, int64_t elements, float* out) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16);
  if (dtype == DType::kF32) {
    std::memcpy(out, row, sizeof(float) * static_cast<size_t>(elements));
    return;
  }
  for (int64_t i = 0; i < elements; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + 2 * i, 2);
    out[i] = dtype == DType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
  }
}

void DequantizeCodes(const BlockCodes& block, int elements, int group, float* out) {
  const float d = F16ToFloat(block.d), d_min = F16ToFloat(block.d_min);
  for (int i = 0, g = 0; i < elements; i += group, ++g) {
    const float scale = d * block.scales[g], min = d_min * block.mins[g];
    for (int j = i; j < i + group; ++j) out[j] = scale * block.codes[j] - min;
  }
}

}  // namespace

void DequantizeRow(DType dtype, const std::byte* row, int64_t elements, float* out) {
  if (elements == 0) return;  // `out` may then be null
  if (!IsQuantized(dtype)) return DequantizePlain(dtype, row, elements, out);
  const DTypeTraits& traits = Traits(dtype);
  const int group = GroupElements(dtype);
  BlockCodes block;
  for (int64_t i = 0; i < elements; i += traits.block_elements, row += traits.block_bytes) {
    UnpackBlock(dtype, row, block);
    if (UsesIq4Values(dtype)) {
      for (int j = 0; j < traits.block_elements; ++j) block.codes[j] = kIq4Values[block.codes[j]];
    }
    DequantizeCodes(block, traits.block_elements, group, out + i);
  }
}

}  // namespace spry
