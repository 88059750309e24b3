#include <immintrin.h>

#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

constexpr int kChains = 24;  // more than the latency of a product times the units that make them

void MultiplyFloats(int64_t rounds) {
  __m512 factor = _mm512_set1_ps(1e-3f);
  __m512 sums[kChains] = {};
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+v"(sums[i]));  // not one chain
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+v"(factor));  // not known, so nothing is folded
#pragma GCC unroll 24
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(factor, factor, sums[i]);
  }
#pragma GCC unroll 24
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "v"(sums[i]));
}

}  // namespace

void ReadAvx512(const std::byte* from, int64_t bytes) {
  __m512i sums[4] = {};
  for (int64_t at = 0; at < bytes; at += kReadStride) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      sums[i] = _mm512_add_epi64(sums[i], _mm512_loadu_si512(from + at + i * 64));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) asm volatile("" : : "v"(sums[i]));
}

ProductLoop Avx512F32Products() { return {"avx512", "float32", kChains * 16, MultiplyFloats}; }

}  // namespace spry
