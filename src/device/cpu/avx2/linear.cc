// linear for AVX2, FMA and F16C: all forms.
#include "device/cpu/simd/linear_tile.h"
#include "device/cpu/simd/vec_avx2.h"

namespace spry {
namespace {

struct Avx2Linear : Avx2 {
  static SPRY_INLINE Float DotPair(Float sum, Int w, Int x) {
    const Int high = SetInt(static_cast<int32_t>(0xffff0000u));
    sum = Fma(AsFloat(ShiftLeft<16>(x)), AsFloat(ShiftLeft<16>(w)), sum);
    return Fma(AsFloat(And(x, high)), AsFloat(And(w, high)), sum);
  }

  static SPRY_INLINE Int DotStart(Int) { return _mm256_setzero_si256(); }

  // Codes up to 4 bits: 16-bit sums hold a whole group, 8 words * 2 products * 15 * 127 = 30480.
  static constexpr bool SumsIn16(WeightForm form) {
    return FactsOf(form).bits <= 4 && !FactsOf(form).table;
  }
  // Codes of 5 and 6 bits: 16 bits hold a pair, 2 * 63 * 127. Bytes (2 * 255 * 127) are widened
  // first.
  template <WeightForm kForm>
  static SPRY_INLINE Int Dot(Int sum, Int w, Int x) {
    if constexpr (SumsIn16(kForm)) {
      return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
    } else if constexpr (FactsOf(kForm).bits < 8 && !FactsOf(kForm).table) {
      const Int pairs = _mm256_maddubs_epi16(w, x);
      return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    } else {
      const Int w_even = _mm256_and_si256(w, _mm256_set1_epi16(0xff));
      const Int w_odd = _mm256_srli_epi16(w, 8);
      const Int x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
      const Int x_odd = _mm256_srai_epi16(x, 8);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w_even, x_even));
      return _mm256_add_epi32(sum, _mm256_madd_epi16(w_odd, x_odd));
    }
  }
  template <WeightForm kForm>
  static SPRY_INLINE Int DotEnd(Int sum, Int correction) {
    if constexpr (SumsIn16(kForm)) sum = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    return _mm256_add_epi32(sum, correction);
  }
};

}  // namespace

void AddAvx2Linear(LinearKernels& kernels) {
  SetTiles<Avx2Linear, WeightForm::kF32, 3, 4>(kernels);
  SetTiles<Avx2Linear, WeightForm::kF16, 6, 2, 4>(kernels);
  SetTiles<Avx2Linear, WeightForm::kBF16, 4, 2, 4>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ8_0, 2, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ4_0, 4, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ4_1, 4, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ5_0, 2, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ5_1, 2, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ2_K, 4, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ3_K, 4, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ4_K, 4, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ5_K, 2, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kQ6_K, 2, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kIQ4_NL, 2, 2>(kernels);
  SetTiles<Avx2Linear, WeightForm::kIQ4_XS, 2, 2>(kernels);
}

}  // namespace spry
