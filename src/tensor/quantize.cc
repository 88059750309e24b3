#include "tensor/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float16.h"

namespace spry {
namespace {

constexpr int kBlock = 32;
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint16_t kF16Infinity = 0x7c00u;

// The first of the values with the largest magnitude; a NaN or an infinity if there is one.
float Largest(const float* x) {
  uint32_t largest = 0;
  for (int i = 0; i < kBlock; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  }
  for (int i = 0; i < kBlock; ++i) {
    if ((std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu) == largest) return x[i];
  }
  return 0.0f;  // not reached
}

// What values are multiplied by. Where 1 / d overflows, d is 0 as an f16 and codes mean nothing.
float Inverse(float d) {
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  return std::isinf(inverse) ? 0.0f : inverse;
}

// Half away from zero, |x| <= 127.
int8_t Round(float x) {
  const int whole = static_cast<int>(x);
  const float rest = x - static_cast<float>(whole);
  return static_cast<int8_t>(whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0));
}

void QuantizeQ4_0(const float* x, float d, std::byte* codes) {
  const float inverse = Inverse(d);
  const auto code = [&](float value) {
    return std::min(15, static_cast<int>(value * inverse + 8.5f));
  };
  for (int i = 0; i < kBlock / 2; ++i) {
    codes[i] = static_cast<std::byte>(code(x[i]) | code(x[i + kBlock / 2]) << 4);
  }
}

void QuantizeQ8_0(const float* x, float d, std::byte* codes) {
  const float inverse = Inverse(d);
  for (int i = 0; i < kBlock; ++i) codes[i] = static_cast<std::byte>(Round(x[i] * inverse));
}

}  // namespace

bool QuantizeRow(DType dtype, const float* row, int64_t elements, std::byte* out) {
  CHECK(CanQuantizeTo(dtype) && elements % kBlock == 0);
  for (int64_t i = 0; i < elements; i += kBlock, out += Traits(dtype).block_bytes) {
    const float largest = Largest(row + i);
    if ((std::bit_cast<uint32_t>(largest) & kInfinity) == kInfinity) return false;
    // The largest magnitude becomes code 0, that is -8, or 127.
    const float d = dtype == DType::kQ4_0 ? largest / -8.0f : std::abs(largest) / 127.0f;
    const uint16_t bits = FloatToF16(d);
    if ((bits & 0x7fffu) == kF16Infinity) return false;
    std::memcpy(out, &bits, 2);
    if (dtype == DType::kQ4_0) QuantizeQ4_0(row + i, d, out + 2);
    if (dtype == DType::kQ8_0) QuantizeQ8_0(row + i, d, out + 2);
  }
  return true;
}

}  // namespace spry
