#include <immintrin.h>

#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

constexpr int kChains = 24;  // more than the latency of a product times the units that make them

void MultiplyBytes(int64_t rounds) {
  __m512i factor = _mm512_set1_epi8(1);
  __m512i sums[kChains] = {};
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+v"(sums[i]));  // not one chain
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+v"(factor));
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], factor, factor);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "v"(sums[i]));
}

}  // namespace

ProductLoop Avx512Int8Products() { return {"avx512", "int8", kChains * 64, MultiplyBytes}; }

}  // namespace spry
