// The passes of the sample op for AVX2 and FMA.
#include <array>

#include "device/cpu/simd/sample_tile.h"
#include "device/cpu/simd/vec_avx2.h"

namespace spry {
namespace {

// For every mask, the lanes in it from the lowest on, a byte each.
constexpr std::array<uint64_t, 256> MakeLanesOf() {
  std::array<uint64_t, 256> table = {};
  for (int mask = 0; mask < 256; ++mask) {
    int at = 0;
    for (int lane = 0; lane < 8; ++lane) {
      if ((mask >> lane & 1) != 0) table[mask] |= static_cast<uint64_t>(lane) << (8 * at++);
    }
  }
  return table;
}
constexpr std::array<uint64_t, 256> kLanesOf = MakeLanesOf();

struct Avx2Sample : Avx2 {
  static SPRY_INLINE Int Iota() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
  static SPRY_INLINE uint32_t MaskOf(Float x) {
    return static_cast<uint32_t>(_mm256_movemask_ps(x));
  }
  static SPRY_INLINE int CountAbove(Float x, Float bound) {
    return __builtin_popcount(MaskOf(_mm256_cmp_ps(x, bound, _CMP_GT_OQ)));
  }
  static SPRY_INLINE int CountEqual(Float x, Float y) {
    return __builtin_popcount(MaskOf(_mm256_cmp_ps(x, y, _CMP_EQ_OQ)));
  }
  static SPRY_INLINE Int SelectAbove(Float x, Float y, Int yes, Int no) {
    return _mm256_blendv_epi8(no, yes, AsInt(_mm256_cmp_ps(x, y, _CMP_GT_OQ)));
  }
  static SPRY_INLINE int Compress(Float x, Float bound, int64_t count, int32_t id, int32_t* ids,
                                  float* values) {
    uint32_t mask = MaskOf(_mm256_cmp_ps(x, bound, _CMP_GE_OQ));
    if (count < kLanes) mask &= (1u << count) - 1;
    if (mask == 0) return 0;
    const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(&kLanesOf[mask]));
    const Int lanes = _mm256_cvtepu8_epi32(packed);
    StoreInt(ids, AddInt(lanes, SetInt(id)));
    Store(values, _mm256_permutevar8x32_ps(x, lanes));
    return __builtin_popcount(mask);
  }
  static SPRY_INLINE Int Truncate(Float x) { return _mm256_cvttps_epi32(x); }
  static SPRY_INLINE void StoreInt(void* p, Int a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), a);
  }
  static SPRY_INLINE Int AddWide(Int sums, Int x) {
    const Int even = _mm256_and_si256(x, _mm256_set1_epi64x(0xffffffff));
    return _mm256_add_epi64(sums, _mm256_add_epi64(even, _mm256_srli_epi64(x, 32)));
  }
  static SPRY_INLINE uint64_t SumWide(Int sums) {
    uint64_t lanes[4];
    StoreInt(lanes, sums);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
  }
};

}  // namespace

const SampleKernels& Avx2SampleKernels() {
  static const SampleKernels kKernels = MakeSampleKernels<Avx2Sample>();
  return kKernels;
}

}  // namespace spry
