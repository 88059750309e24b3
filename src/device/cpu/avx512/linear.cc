// linear for AVX-512 F, BW, DQ, VL: f32, f16, and bf16 by widening.
#include "device/cpu/simd/linear_tile.h"
#include "device/cpu/simd/vec_avx512.h"

namespace spry {
namespace {

struct Avx512Float : Avx512 {
  static SPRY_INLINE Float DotPair(Float sum, Int w, Int x) {
    const Int high = SetInt(static_cast<int32_t>(0xffff0000u));
    sum = Fma(AsFloat(ShiftLeft<16>(x)), AsFloat(ShiftLeft<16>(w)), sum);
    return Fma(AsFloat(And(x, high)), AsFloat(And(w, high)), sum);
  }
};

}  // namespace

void AddAvx512Linear(LinearKernels& kernels) {
  SetTiles<Avx512Float, WeightForm::kF32, 6, 2>(kernels);
  SetTiles<Avx512Float, WeightForm::kF16, 8, 2>(kernels);
  SetTiles<Avx512Float, WeightForm::kBF16, 6, 2>(kernels);
}

}  // namespace spry
