#include <immintrin.h>

#include "device/cpu/simd/product_chains.h"
#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

constexpr int kChains = 24;

void MultiplyPairs(int64_t rounds) {
  constexpr int kTwice = 0x3a833a83;  // 1e-3
  RunChains<kChains, __m512>(rounds, _mm512_set1_epi32(kTwice), [](__m512 sum, __m512i factor) {
    return _mm512_dpbf16_ps(sum, (__m512bh)factor, (__m512bh)factor);
  });
}

}  // namespace

ProductLoop Avx512Bf16Products() { return {"avx512", "bfloat16", kChains * 32, MultiplyPairs}; }

}  // namespace spry
