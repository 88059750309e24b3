// The loop of every ProductLoop (speed_kernels.h): chains of products that do not wait for one
// another, more of them than the latency of a product times the units that make them.
#pragma once

#include <cstdint>

#include "device/cpu/simd/always_inline.h"

namespace spry {

// step(sum, factor): the sum with one product more. Sums and factor are kept unknown to the
// compiler, or it would make one chain of all, or fold them away.
template <int kChains, typename Sum, typename Factor, typename Step>
SPRY_INLINE void RunChains(int64_t rounds, Factor factor, const Step& step) {
  Sum sums[kChains] = {};
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+v"(sums[i]));
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+v"(factor));
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = step(sums[i], factor);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "v"(sums[i]));
}

}  // namespace spry
