// ops/math.h lane by lane: the same operations in the same order, so the same bits.
#pragma once

#include "device/cpu/simd/always_inline.h"
#include "ops/math.h"

namespace spry {

template <typename V>
SPRY_INLINE typename V::Float VecExp(typename V::Float x) {
  using F = typename V::Float;
  // x is the second operand, which is what a comparison with a NaN gives.
  const F clamped = V::Min(V::Set(kExpMax), V::Max(V::Set(kExpMin), x));
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
SPRY_INLINE typename V::Float VecLog(typename V::Float x) {
  using F = typename V::Float;
  const typename V::Int root_half = V::SetInt(0x3f3504f3);
  const typename V::Int bits = V::SubInt(V::AsInt(x), root_half);
  const F e = V::ToFloat(V::template ShiftRightSigned<23>(bits));
  const typename V::Int mantissa = V::AddInt(V::And(bits, V::SetInt(0x007fffff)), root_half);
  const F m = V::Sub(V::AsFloat(mantissa), V::Set(1.0f));
  F p = V::Set(7.0376836292e-2f);
  p = V::Fma(p, m, V::Set(-1.1514610310e-1f));
  p = V::Fma(p, m, V::Set(1.1676998740e-1f));
  p = V::Fma(p, m, V::Set(-1.2420140846e-1f));
  p = V::Fma(p, m, V::Set(1.4249322787e-1f));
  p = V::Fma(p, m, V::Set(-1.6668057665e-1f));
  p = V::Fma(p, m, V::Set(2.0000714765e-1f));
  p = V::Fma(p, m, V::Set(-2.4999993993e-1f));
  p = V::Fma(p, m, V::Set(3.3333331174e-1f));
  const F square = V::Mul(m, m);
  F tail = V::Mul(V::Mul(p, m), square);
  tail = V::Fma(e, V::Set(kLn2Low), tail);
  tail = V::NegFma(V::Set(0.5f), square, tail);
  return V::Fma(e, V::Set(kLn2High), V::Add(m, tail));
}

template <typename V>
SPRY_INLINE typename V::Float VecTanh(typename V::Float x) {
  const typename V::Float one = V::Set(1.0f);
  return V::Sub(one, V::Div(V::Set(2.0f), V::Add(VecExp<V>(V::Mul(V::Set(2.0f), x)), one)));
}

template <typename V>
SPRY_INLINE typename V::Float VecSilu(typename V::Float x) {
  return V::Div(x, V::Add(V::Set(1.0f), VecExp<V>(V::Negate(x))));
}

}  // namespace spry
