// The passes of the sample op for AVX-512 F, BW, DQ, VL.
#include "device/cpu/simd/sample_tile.h"
#include "device/cpu/simd/vec_avx512.h"

namespace spry {
namespace {

struct Avx512Sample : Avx512 {
  static SPRY_INLINE Int Iota() {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  static SPRY_INLINE int CountAbove(Float x, Float bound) {
    return __builtin_popcount(_mm512_cmp_ps_mask(x, bound, _CMP_GT_OQ));
  }
  static SPRY_INLINE int CountEqual(Float x, Float y) {
    return __builtin_popcount(_mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ));
  }
  static SPRY_INLINE Int SelectAbove(Float x, Float y, Int yes, Int no) {
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, y, _CMP_GT_OQ), no, yes);
  }
  // Not the form that compresses into memory, which some machines run by microcode.
  static SPRY_INLINE int Compress(Float x, Float bound, int64_t count, int32_t id, int32_t* ids,
                                  float* values) {
    uint32_t mask = _mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ);
    if (count < kLanes) mask &= (1u << count) - 1;
    if (mask == 0) return 0;
    const auto lanes = static_cast<__mmask16>(mask);
    _mm512_storeu_si512(ids, _mm512_maskz_compress_epi32(lanes, AddInt(Iota(), SetInt(id))));
    Store(values, _mm512_maskz_compress_ps(lanes, x));
    return __builtin_popcount(mask);
  }
  static SPRY_INLINE Int Truncate(Float x) { return _mm512_cvttps_epi32(x); }
  static SPRY_INLINE void StoreInt(void* p, Int a) { _mm512_storeu_si512(p, a); }
  static SPRY_INLINE Int AddWide(Int sums, Int x) {
    const Int even = _mm512_and_si512(x, _mm512_set1_epi64(0xffffffff));
    return _mm512_add_epi64(sums, _mm512_add_epi64(even, _mm512_srli_epi64(x, 32)));
  }
  static SPRY_INLINE uint64_t SumWide(Int sums) { return _mm512_reduce_add_epi64(sums); }
};

}  // namespace

const SampleKernels& Avx512SampleKernels() {
  static const SampleKernels kKernels = MakeSampleKernels<Avx512Sample>();
  return kKernels;
}

}  // namespace spry
