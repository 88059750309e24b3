#include "tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/float16.h"

namespace spry {
namespace {

uint16_t Load16(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return bits;
}

constexpr int kBlock = 32;

void DequantizeQ4(const std::byte* nibbles, float scale, float offset, float zero, float* out) {
  for (int i = 0; i < kBlock / 2; ++i) {
    const int byte = static_cast<int>(nibbles[i]);
    out[i] = scale * (static_cast<float>(byte & 15) - zero) + offset;
    out[i + kBlock / 2] = scale * (static_cast<float>(byte >> 4) - zero) + offset;
  }
}

}  // namespace

void DequantizeRow(DType dtype, const std::byte* row, int64_t elements, float* out) {
  const DTypeTraits& traits = Traits(dtype);
  const int64_t blocks = elements / traits.block_elements;
  for (int64_t b = 0; b < blocks; ++b, row += traits.block_bytes, out += traits.block_elements) {
    switch (dtype) {
      case DType::kF32: std::memcpy(out, row, 4); break;
      case DType::kF16: *out = F16ToFloat(Load16(row)); break;
      case DType::kBF16: *out = Bf16ToFloat(Load16(row)); break;
      case DType::kQ4_0:
        // -0 is the offset that changes nothing: adding +0 would turn -0 into +0.
        DequantizeQ4(row + 2, F16ToFloat(Load16(row)), -0.0f, 8.0f, out);
        break;
      case DType::kQ4_1:
        DequantizeQ4(row + 4, F16ToFloat(Load16(row)), F16ToFloat(Load16(row + 2)), 0.0f, out);
        break;
      case DType::kQ8_0:
        for (int i = 0; i < kBlock; ++i) {
          out[i] = F16ToFloat(Load16(row)) * static_cast<float>(static_cast<int8_t>(row[2 + i]));
        }
        break;
      default: CHECK(false && "not a weight type");
    }
  }
}

}  // namespace spry
