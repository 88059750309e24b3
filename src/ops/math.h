// Exp and Log with one definition for every device: the same bits from scalar C++, SIMD and CUDA,
// because each rounding is written out (fma where fused). SIMD kernels repeat these formulas lane
// by lane and a test compares the bits. Error below 2 ulp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/ids.h"

namespace spry {

SPRY_HOST_DEVICE inline float FloatFromBits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}
SPRY_HOST_DEVICE inline uint32_t BitsFromFloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// exp(x) for x <= 88; 0 below -87; NaN for NaN. x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts
// so that n * kLn2High is exact. Polynomial of degree 5 for (exp(r) - 1 - r) / r^2.
inline constexpr float kLog2E = 1.44269504088896341f;
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
inline constexpr float kExpMin = -87.0f;
inline constexpr float kExpMax = 88.0f;

SPRY_HOST_DEVICE inline float Exp(float x) {
  // As the min and max instructions compare: a NaN passes and stays a NaN.
  const float above = kExpMin > x ? kExpMin : x;
  const float clamped = kExpMax < above ? kExpMax : above;
  const float n = rintf(clamped * kLog2E);
  float r = fmaf(-n, kLn2High, clamped);
  r = fmaf(-n, kLn2Low, r);
  float p = 1.9875691500e-4f;
  p = fmaf(p, r, 1.3981999507e-3f);
  p = fmaf(p, r, 8.3334519073e-3f);
  p = fmaf(p, r, 4.1665795894e-2f);
  p = fmaf(p, r, 1.6666665459e-1f);
  p = fmaf(p, r, 5.0000001201e-1f);
  const float value = fmaf(p, r * r, r) + 1.0f;
  const float scale = FloatFromBits(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
  return x < kExpMin ? 0.0f : value * scale;
}

// log(x) for normal x > 0. x = 2^e m, m in [sqrt(1/2), sqrt(2)).
SPRY_HOST_DEVICE inline float Log(float x) {
  const uint32_t bits = BitsFromFloat(x) - 0x3f3504f3u;  // sqrt(1/2)
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float m = FloatFromBits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 7.0376836292e-2f;
  p = fmaf(p, m, -1.1514610310e-1f);
  p = fmaf(p, m, 1.1676998740e-1f);
  p = fmaf(p, m, -1.2420140846e-1f);
  p = fmaf(p, m, 1.4249322787e-1f);
  p = fmaf(p, m, -1.6668057665e-1f);
  p = fmaf(p, m, 2.0000714765e-1f);
  p = fmaf(p, m, -2.4999993993e-1f);
  p = fmaf(p, m, 3.3333331174e-1f);
  const float square = m * m;
  float tail = p * m * square;
  tail = fmaf(e, kLn2Low, tail);
  tail = fmaf(-0.5f, square, tail);
  return fmaf(e, kLn2High, m + tail);
}

// Absolute error below 1e-6, which is what a soft cap needs; small x lose relative accuracy.
SPRY_HOST_DEVICE inline float Tanh(float x) { return 1.0f - 2.0f / (Exp(2.0f * x) + 1.0f); }

SPRY_HOST_DEVICE inline float Silu(float x) { return x / (1.0f + Exp(-x)); }

}  // namespace spry
