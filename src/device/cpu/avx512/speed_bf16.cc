#include <immintrin.h>

#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

constexpr int kChains = 24;  // more than the latency of a product times the units that make them

void MultiplyPairs(int64_t rounds) {
  __m512i factor = _mm512_set1_epi32(0x3a833a83);  // 1e-3, twice
  __m512 sums[kChains] = {};
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+v"(sums[i]));  // not one chain
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+v"(factor));
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i)
      sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)factor, (__m512bh)factor);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "v"(sums[i]));
}

}  // namespace

ProductLoop Avx512Bf16Products() { return {"avx512", "bfloat16", kChains * 32, MultiplyPairs}; }

}  // namespace spry
