// The row kernels for AVX-512 F, BW, DQ, VL.
#include "device/cpu/simd/row_tile.h"
#include "device/cpu/simd/vec_avx512.h"

namespace spry {
namespace {

struct Avx512Rows : Avx512 {
  static SPRY_INLINE Float Twice(Float x) {
    const Int lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(lanes, x);
  }
  static SPRY_INLINE Float SwapPairs(Float x) { return _mm512_permute_ps(x, 0xb1); }
  static SPRY_INLINE Float NegateEven(Float x) {
    return AsFloat(_mm512_xor_si512(AsInt(x), _mm512_set1_epi64(0x80000000)));
  }
  static SPRY_INLINE float FirstF16(const std::byte* p) {
    uint16_t bits;
    memcpy(&bits, p, 2);
    return _cvtsh_ss(bits);
  }
  static SPRY_INLINE __m128i LoadSixteen(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  template <int kShift>
  static SPRY_INLINE Float LoadNibbles(const std::byte* p) {
    const Int bytes = _mm512_cvtepu8_epi32(LoadSixteen(p));
    return ToFloat(And(ShiftRight<kShift>(bytes), SetInt(15)));
  }
};

}  // namespace

const RowKernels& Avx512RowKernels() {
  static const RowKernels kKernels = MakeRowKernels<Avx512Rows>();
  return kKernels;
}

}  // namespace spry
