// linear for AVX-512 VNNI: quantised weights.
#include "device/cpu/simd/linear_tile.h"
#include "device/cpu/simd/vec_avx512.h"

namespace spry {
namespace {

struct Avx512Vnni : Avx512 {
  static SPRY_INLINE Int DotStart(Int correction) { return correction; }
  template <WeightForm>
  static SPRY_INLINE Int Dot(Int sum, Int w, Int x) {
    return _mm512_dpbusd_epi32(sum, w, x);
  }
  template <WeightForm>
  static SPRY_INLINE Int DotEnd(Int sum, Int) {
    return sum;
  }
};

}  // namespace

void AddAvx512VnniLinear(LinearKernels& kernels) {
  SetTiles<Avx512Vnni, WeightForm::kQ8_0, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ4_0, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ4_1, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ5_0, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ5_1, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ2_K, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ3_K, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ4_K, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ5_K, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kQ6_K, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kIQ4_NL, 6, 2>(kernels);
  SetTiles<Avx512Vnni, WeightForm::kIQ4_XS, 6, 2>(kernels);
}

}  // namespace spry
