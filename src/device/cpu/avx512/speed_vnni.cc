#include <immintrin.h>

#include "device/cpu/simd/product_chains.h"
#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

constexpr int kChains = 24;

void MultiplyBytes(int64_t rounds) {
  RunChains<kChains, __m512i>(rounds, _mm512_set1_epi8(1), [](__m512i sum, __m512i factor) {
    return _mm512_dpbusd_epi32(sum, factor, factor);
  });
}

}  // namespace

ProductLoop Avx512Int8Products() { return {"avx512", "int8", kChains * 64, MultiplyBytes}; }

}  // namespace spry
