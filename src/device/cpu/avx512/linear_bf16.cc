// linear for AVX512-BF16: bf16 weights.
#include "device/cpu/simd/linear_tile.h"
#include "device/cpu/simd/vec_avx512.h"

namespace spry {
namespace {

struct Avx512Bf16 : Avx512 {
  static SPRY_INLINE Float DotPair(Float sum, Int w, Int x) {
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
  }
};

}  // namespace

void AddAvx512Bf16Linear(LinearKernels& kernels) {
  SetTiles<Avx512Bf16, WeightForm::kBF16, 6, 2>(kernels);
}

}  // namespace spry
