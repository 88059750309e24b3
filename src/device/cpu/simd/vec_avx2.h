// Vectors of 8 floats: AVX2, FMA, F16C. The interface of vec_avx512.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "device/cpu/simd/always_inline.h"

namespace spry {

struct Avx2 {
  static constexpr int kLanes = 8;
  using Float = __m256;
  using Int = __m256i;

  static SPRY_INLINE Float Zero() { return _mm256_setzero_ps(); }
  static SPRY_INLINE Float Set(float x) { return _mm256_set1_ps(x); }
  static SPRY_INLINE Float Load(const float* p) { return _mm256_loadu_ps(p); }
  static SPRY_INLINE void Store(float* p, Float x) { _mm256_storeu_ps(p, x); }
  static SPRY_INLINE Int PartMask(int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(count)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static SPRY_INLINE Float LoadPart(const float* p, int64_t count) {
    return _mm256_maskload_ps(p, PartMask(count));
  }
  static SPRY_INLINE void StorePart(float* p, int64_t count, Float x) {
    _mm256_maskstore_ps(p, PartMask(count), x);
  }

  static SPRY_INLINE Float Fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static SPRY_INLINE Float NegFma(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }
  static SPRY_INLINE Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static SPRY_INLINE Float Sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static SPRY_INLINE Float Mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static SPRY_INLINE Float Div(Float a, Float b) { return _mm256_div_ps(a, b); }
  static SPRY_INLINE Float Sqrt(Float a) { return _mm256_sqrt_ps(a); }
  static SPRY_INLINE Float Max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static SPRY_INLINE Float Min(Float a, Float b) { return _mm256_min_ps(a, b); }
  static SPRY_INLINE Float Negate(Float a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  static SPRY_INLINE Float Round(Float a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static SPRY_INLINE Float SelectLess(Float a, Float b, Float yes, Float no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static SPRY_INLINE Float SelectFirst(int64_t count, Float yes, Float no) {
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(PartMask(count)));
  }
  static SPRY_INLINE float First(Float a) { return _mm256_cvtss_f32(a); }
  static SPRY_INLINE float Largest(Float a) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }
  static SPRY_INLINE float FoldLanes(const Float (&lanes)[2]) {
    const __m256 eight = _mm256_add_ps(lanes[0], lanes[1]);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static SPRY_INLINE Float Exp2(Float n) {
    const Int biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }

  static SPRY_INLINE Float LoadF16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static SPRY_INLINE Float LoadBf16(const void* p) {
    const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static SPRY_INLINE void StoreF16(void* p, Float x) {
    _mm_storeu_si128(static_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  static SPRY_INLINE Int SetInt(int32_t x) { return _mm256_set1_epi32(x); }
  static SPRY_INLINE Int LoadInt(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static SPRY_INLINE Int AddInt(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static SPRY_INLINE Int SubInt(Int a, Int b) { return _mm256_sub_epi32(a, b); }
  static SPRY_INLINE Int MulInt(Int a, Int b) { return _mm256_mullo_epi32(a, b); }
  static SPRY_INLINE Int MaxInt(Int a, Int b) { return _mm256_max_epi32(a, b); }
  static SPRY_INLINE Int And(Int a, Int b) { return _mm256_and_si256(a, b); }
  static SPRY_INLINE Int Or(Int a, Int b) { return _mm256_or_si256(a, b); }
  static SPRY_INLINE Int Xor(Int a, Int b) { return _mm256_xor_si256(a, b); }
  static SPRY_INLINE Int SelectNan(Float x, Int yes, Int no) {
    const Float is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(is_nan));
  }
  template <int kBits>
  static SPRY_INLINE Int ShiftLeft(Int a) {
    return _mm256_slli_epi32(a, kBits);
  }
  template <int kBits>
  static SPRY_INLINE Int ShiftRight(Int a) {
    return _mm256_srli_epi32(a, kBits);
  }
  template <int kBits>
  static SPRY_INLINE Int ShiftRightSigned(Int a) {
    return _mm256_srai_epi32(a, kBits);
  }
  static SPRY_INLINE Float ToFloat(Int a) { return _mm256_cvtepi32_ps(a); }
  // Signed bytes, one for each lane.
  static SPRY_INLINE Float LoadBytes(const std::byte* p) {
    return ToFloat(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // table[i] for each byte i < 16.
  static SPRY_INLINE Int LookUp(const uint8_t* table, Int i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), i);
  }
  static SPRY_INLINE Int ToInt(Float a) { return _mm256_cvtps_epi32(a); }
  static SPRY_INLINE Float AsFloat(Int a) { return _mm256_castsi256_ps(a); }
  static SPRY_INLINE Int AsInt(Float a) { return _mm256_castps_si256(a); }
  static SPRY_INLINE int32_t SumInt(Int a) {
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
  }
  static SPRY_INLINE int32_t LargestInt(Int a) {
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
  }
  static SPRY_INLINE void StoreBytes(void* p, Int a) {
    const __m128i halves =
        _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
  }
  static SPRY_INLINE void StoreHalves(void* p, Int a) {
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storeu_si128(static_cast<__m128i*>(p), halves);
  }
};

}  // namespace spry
