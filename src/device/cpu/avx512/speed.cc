#include <immintrin.h>

#include "device/cpu/simd/product_chains.h"
#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

constexpr int kChains = 24;

void MultiplyFloats(int64_t rounds) {
  RunChains<kChains, __m512>(rounds, _mm512_set1_ps(1e-3f), [](__m512 sum, __m512 factor) {
    return _mm512_fmadd_ps(factor, factor, sum);
  });
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
