// ops/math.h lane by lane: the same operations in the same order, so the same bits.
#pragma once

#include "device/cpu/simd/always_inline.h"
#include "ops/math.h"

namespace spry {

template <typename V>
SPRY_INLINE typename V::Float VecExp(typename V::Float x) {
  using F = typename V::Float;
  const F clamped = V::Min(V::Max(x, V::Set(kExpMin)), V::Set(kExpMax));
  const F n = V::Round(V::Mul(clamped, V::Set(kLog2E)));
  F r = V::NegFma(n, V::Set(kLn2High), clamped);
  r = V::NegFma(n, V::Set(kLn2Low), r);
  F p = V::Set(1.9875691500e-4f);
  p = V::Fma(p, r, V::Set(1.3981999507e-3f));
  p = V::Fma(p, r, V::Set(8.3334519073e-3f));
  p = V::Fma(p, r, V::Set(4.1665795894e-2f));
  p = V::Fma(p, r, V::Set(1.6666665459e-1f));
  p = V::Fma(p, r, V::Set(5.0000001201e-1f));
  const F value = V::Add(V::Fma(p, V::Mul(r, r), r), V::Set(1.0f));
  return V::SelectLess(x, V::Set(kExpMin), V::Zero(), V::Mul(value, V::Exp2(n)));
}

template <typename V>
SPRY_INLINE typename V::Float VecSilu(typename V::Float x) {
  return V::Div(x, V::Add(V::Set(1.0f), VecExp<V>(V::Negate(x))));
}

}  // namespace spry
