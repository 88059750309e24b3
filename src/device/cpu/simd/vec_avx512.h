// Vectors of 16 floats: AVX-512 F, BW, DQ, VL. The interface that all vec_*.h share is what
// linear_tile.h and prepare.h use.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "device/cpu/simd/always_inline.h"

namespace spry {

struct Avx512 {
  static constexpr int kLanes = 16;
  using Float = __m512;
  using Int = __m512i;

  static SPRY_INLINE Float Zero() { return _mm512_setzero_ps(); }
  static SPRY_INLINE Float Set(float x) { return _mm512_set1_ps(x); }
  static SPRY_INLINE Float Load(const float* p) { return _mm512_loadu_ps(p); }
  static SPRY_INLINE void Store(float* p, Float x) { _mm512_storeu_ps(p, x); }
  // The first `count` lanes, 0 < count < kLanes; the others are 0 and are not read.
  static SPRY_INLINE Float LoadPart(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
  }
  static SPRY_INLINE void StorePart(float* p, int64_t count, Float x) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), x);
  }

  static SPRY_INLINE Float Fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static SPRY_INLINE Float NegFma(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }
  static SPRY_INLINE Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static SPRY_INLINE Float Sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static SPRY_INLINE Float Mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static SPRY_INLINE Float Div(Float a, Float b) { return _mm512_div_ps(a, b); }
  static SPRY_INLINE Float Sqrt(Float a) { return _mm512_sqrt_ps(a); }
  // b where either is NaN.
  static SPRY_INLINE Float Max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static SPRY_INLINE Float Min(Float a, Float b) { return _mm512_min_ps(a, b); }
  static SPRY_INLINE Float Negate(Float a) {
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(a), _mm512_set1_epi32(INT32_MIN)));
  }
  // To the nearest integer, ties to even.
  static SPRY_INLINE Float Round(Float a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  // a < b ? yes : no, lane by lane; no where either is NaN.
  static SPRY_INLINE Float SelectLess(Float a, Float b, Float yes, Float no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  // yes in the first `count` lanes (any number), no in the others.
  static SPRY_INLINE Float SelectFirst(int64_t count, Float yes, Float no) {
    const int64_t lanes = count < 0 ? 0 : (count > kLanes ? kLanes : count);
    return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << lanes) - 1), no, yes);
  }
  static SPRY_INLINE float First(Float a) { return _mm512_cvtss_f32(a); }
  static SPRY_INLINE float Largest(Float a) { return _mm512_reduce_max_ps(a); }
  // The 16 lanes of reference/lanes.h, folded as there.
  static SPRY_INLINE float FoldLanes(const Float (&lanes)[1]) {
    const __m256 eight =
        _mm256_add_ps(_mm512_castps512_ps256(lanes[0]), _mm512_extractf32x8_ps(lanes[0], 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  // 2^n for whole n in [-126, 127].
  static SPRY_INLINE Float Exp2(Float n) {
    const Int biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }

  static SPRY_INLINE Float LoadF16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static SPRY_INLINE Float LoadBf16(const void* p) {
    const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static SPRY_INLINE void StoreF16(void* p, Float x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  static SPRY_INLINE Int SetInt(int32_t x) { return _mm512_set1_epi32(x); }
  static SPRY_INLINE Int LoadInt(const void* p) { return _mm512_loadu_si512(p); }
  static SPRY_INLINE Int AddInt(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static SPRY_INLINE Int SubInt(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static SPRY_INLINE Int MulInt(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
  static SPRY_INLINE Int MaxInt(Int a, Int b) { return _mm512_max_epi32(a, b); }
  static SPRY_INLINE Int And(Int a, Int b) { return _mm512_and_si512(a, b); }
  static SPRY_INLINE Int Or(Int a, Int b) { return _mm512_or_si512(a, b); }
  static SPRY_INLINE Int Xor(Int a, Int b) { return _mm512_xor_si512(a, b); }
  // Lane by lane: yes where x is a NaN.
  static SPRY_INLINE Int SelectNan(Float x, Int yes, Int no) {
    return _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), no, yes);
  }
  template <int kBits>
  static SPRY_INLINE Int ShiftLeft(Int a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static SPRY_INLINE Int ShiftRight(Int a) {
    return _mm512_srli_epi32(a, kBits);
  }
  template <int kBits>
  static SPRY_INLINE Int ShiftRightSigned(Int a) {
    return _mm512_srai_epi32(a, kBits);
  }
  static SPRY_INLINE Float ToFloat(Int a) { return _mm512_cvtepi32_ps(a); }
  // Signed bytes, one for each lane.
  static SPRY_INLINE Float LoadBytes(const std::byte* p) {
    return ToFloat(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  // table[i] for each byte i < 16.
  static SPRY_INLINE Int LookUp(const uint8_t* table, Int i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), i);
  }
  static SPRY_INLINE Int ToInt(Float a) { return _mm512_cvtps_epi32(a); }  // ties to even
  static SPRY_INLINE Float AsFloat(Int a) { return _mm512_castsi512_ps(a); }
  static SPRY_INLINE Int AsInt(Float a) { return _mm512_castps_si512(a); }
  static SPRY_INLINE int32_t SumInt(Int a) { return _mm512_reduce_add_epi32(a); }
  static SPRY_INLINE int32_t LargestInt(Int a) { return _mm512_reduce_max_epi32(a); }
  // The low bytes of all lanes; the values fit in int8.
  static SPRY_INLINE void StoreBytes(void* p, Int a) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
  }
  // The low halves of all lanes; the values fit in uint16.
  static SPRY_INLINE void StoreHalves(void* p, Int a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a));
  }
};

}  // namespace spry
