// The row kernels for AVX2, FMA and F16C.
#include "device/cpu/simd/row_tile.h"
#include "device/cpu/simd/vec_avx2.h"

namespace spry {
namespace {

struct Avx2Rows : Avx2 {
  static SPRY_INLINE Float Twice(Float x) {
    return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
  }
  static SPRY_INLINE Float SwapPairs(Float x) { return _mm256_permute_ps(x, 0xb1); }
  static SPRY_INLINE Float NegateEven(Float x) {
    return _mm256_xor_ps(x, _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000)));
  }
  static SPRY_INLINE float FirstF16(const std::byte* p) {
    uint16_t bits;
    memcpy(&bits, p, 2);
    return _cvtsh_ss(bits);
  }
  static SPRY_INLINE __m128i LoadEight(const std::byte* p) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  template <int kShift>
  static SPRY_INLINE Float LoadNibbles(const std::byte* p) {
    const Int bytes = _mm256_cvtepu8_epi32(LoadEight(p));
    return ToFloat(And(ShiftRight<kShift>(bytes), SetInt(15)));
  }
};

}  // namespace

const RowKernels& Avx2RowKernels() {
  static const RowKernels kKernels = MakeRowKernels<Avx2Rows>();
  return kKernels;
}

}  // namespace spry
