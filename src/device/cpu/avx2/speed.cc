#include <immintrin.h>

#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

constexpr int kChains = 12;  // more than the latency of a product times the units that make them

void MultiplyFloats(int64_t rounds) {
  __m256 factor = _mm256_set1_ps(1e-3f);
  __m256 sums[kChains] = {};
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+x"(sums[i]));  // not one chain
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+x"(factor));  // not known, so nothing is folded
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(factor, factor, sums[i]);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "x"(sums[i]));
}

void MultiplyBytes(int64_t rounds) {
  __m256i factor = _mm256_set1_epi8(1);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[kChains] = {};
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+x"(sums[i]));  // not one chain
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(factor));
      const __m256i pairs = _mm256_maddubs_epi16(factor, factor);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" : : "x"(sums[i]));
}

}  // namespace

void ReadAvx2(const std::byte* from, int64_t bytes) {
  __m256i sums[4] = {};
  for (int64_t at = 0; at < bytes; at += kReadStride) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const auto* words = reinterpret_cast<const __m256i*>(from + at) + i;
      sums[i % 4] = _mm256_add_epi64(sums[i % 4], _mm256_loadu_si256(words));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) asm volatile("" : : "x"(sums[i]));
}

ProductLoop Avx2F32Products() { return {"avx2", "float32", kChains * 8, MultiplyFloats}; }
ProductLoop Avx2Int8Products() { return {"avx2", "int8", kChains * 32, MultiplyBytes}; }

}  // namespace spry
