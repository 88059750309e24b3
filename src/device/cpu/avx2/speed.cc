#include <immintrin.h>

#include "device/cpu/simd/product_chains.h"
#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

constexpr int kChains = 12;

void MultiplyFloats(int64_t rounds) {
  RunChains<kChains, __m256>(rounds, _mm256_set1_ps(1e-3f), [](__m256 sum, __m256 factor) {
    return _mm256_fmadd_ps(factor, factor, sum);
  });
}

void MultiplyBytes(int64_t rounds) {
  const __m256i ones = _mm256_set1_epi16(1);
  RunChains<kChains, __m256i>(rounds, _mm256_set1_epi8(1), [ones](__m256i sum, __m256i factor) {
    asm volatile("" : "+x"(factor));  // or all chains would share their pairs
    const __m256i pairs = _mm256_maddubs_epi16(factor, factor);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
  });
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
