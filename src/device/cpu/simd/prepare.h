// Activations in the forms that weights want (linear_kernels.h describes the rows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cpu/simd/always_inline.h"
#include "device/cpu/simd/linear_kernels.h"

namespace spry {

// One group: writes q, the scale and sum(q) of each half. The largest magnitude is found as bits,
// so that a NaN is the largest of all. A group with a NaN or an infinity gets q = 0 and a NaN as
// its scale, which makes every product a NaN; one whose scale would be no normal number counts as
// zero.
template <typename V>
SPRY_INLINE void QuantizeGroup(const float* x, int8_t* q, float* scale, int32_t* half_sums) {
  constexpr int kVectors = kGroup / V::kLanes;
  typename V::Float values[kVectors];
  typename V::Int largest = V::SetInt(0);
  for (int i = 0; i < kVectors; ++i) {
    values[i] = V::Load(x + i * V::kLanes);
    largest = V::MaxInt(largest, V::And(V::AsInt(values[i]), V::SetInt(0x7fffffff)));
  }
  const int32_t bits = V::LargestInt(largest);
  if (bits >= 0x7f800000) [[unlikely]] {
    memset(q, 0, kGroup);
    *scale = __builtin_nanf("");
    half_sums[0] = half_sums[1] = 0;
    return;
  }
  float magnitude;
  memcpy(&magnitude, &bits, 4);
  *scale = magnitude * (1.0f / 127.0f);
  const float inverse = *scale < 0x1p-126f ? 0.0f : 1.0f / *scale;
  for (int half = 0; half < 2; ++half) {
    typename V::Int sum = V::SetInt(0);
    for (int i = half * kVectors / 2; i < (half + 1) * kVectors / 2; ++i) {
      const typename V::Int rounded = V::ToInt(V::Mul(values[i], V::Set(inverse)));
      V::StoreBytes(q + i * V::kLanes, rounded);
      sum = V::AddInt(sum, rounded);
    }
    half_sums[half] = V::SumInt(sum);
  }
}

template <typename V>
void QuantizeRow(const float* x, int64_t k, std::byte* row) {
  const int64_t groups = k / kGroup;
  int8_t* q = reinterpret_cast<int8_t*>(row);
  float* scale = reinterpret_cast<float*>(row + k);
  float* scaled_sum = scale + groups;
  int32_t* minus_8_sum = reinterpret_cast<int32_t*>(scale + 2 * groups);
  int32_t* half_sums = minus_8_sum + groups;
  for (int64_t g = 0; g < groups; ++g, half_sums += 2) {
    QuantizeGroup<V>(x + g * kGroup, q + g * kGroup, scale + g, half_sums);
    const int32_t sum = half_sums[0] + half_sums[1];
    scaled_sum[g] = scale[g] * static_cast<float>(sum);
    minus_8_sum[g] = -8 * sum;
  }
}

// The bits of FloatToBf16 for one value.
SPRY_INLINE uint16_t RoundToBf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

// The same for a vector, in the upper halves of its lanes.
template <typename V>
SPRY_INLINE typename V::Int RoundBitsToBf16(typename V::Float value) {
  using Int = typename V::Int;
  const Int bits = V::AsInt(value);
  const Int odd = V::And(V::template ShiftRight<16>(bits), V::SetInt(1));
  const Int rounded = V::AddInt(bits, V::AddInt(odd, V::SetInt(0x7fff)));
  const Int quiet = V::Or(bits, V::SetInt(0x400000));
  return V::SelectNan(value, quiet, rounded);
}

template <typename V>
void RoundRow(const float* x, int64_t k, std::byte* row) {
  uint16_t* out = reinterpret_cast<uint16_t*>(row);
  int64_t i = 0;
  for (; i + V::kLanes <= k; i += V::kLanes) {
    V::StoreHalves(out + i, V::template ShiftRight<16>(RoundBitsToBf16<V>(V::Load(x + i))));
  }
  for (; i < k; ++i) out[i] = RoundToBf16(x[i]);
  if (k % 2 != 0) out[k] = 0;
}

}  // namespace spry
