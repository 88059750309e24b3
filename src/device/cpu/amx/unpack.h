// Quantised weights to bf16, as tiles of B.
//
// w = fma(code, d, m) in f16: d is the scale and m the minimum, or what takes the codes' bias away,
// both times a power of two (UnitOf) that brings the weight's largest element to [2^14, 2^15]. An
// f16 whose bits are shifted to where a bf16 has them is that number times 2^-112, rounded from 11
// bits to 8. So an element keeps 8 bits, as if it had been made in f32 and rounded, unless it is
// 2^29 times smaller than the largest: then it is zero.
//
// The halves of a 32-bit lane, which a product takes as neighbours in k, come from bytes 0 and 2 or
// 1 and 3 of a word of codes: k and k + 2 of each four, where activations lie likewise.
#pragma once

#include <cstring>

#include "device/cpu/amx/tiles.h"
#include "device/cpu/simd/linear_tile.h"
#include "device/cpu/simd/vec_avx512.h"

namespace spry {

inline constexpr int kTileGroupBytes = kPanelRows * kGroup * 2;  // of a group as bf16
inline constexpr int kPairBytes = kPanelRows * 4;                // of two k

// From the bits of an f16 to those of a bf16.
inline constexpr int kHalfToBf16Log2 = -112;
// Activations are multiplied by this much, so that no sum comes near what an f32 cannot hold.
inline constexpr int kActivationLog2 = 56;

SPRY_INLINE float Exp2i(int n) {
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

// log2 of what weights are multiplied by.
SPRY_INLINE int UnitLog2(float largest) {
  uint32_t bits;
  memcpy(&bits, &largest, 4);
  const int exponent = static_cast<int>(bits >> 23) - 127;
  return 14 - (exponent < -60 ? -60 : (exponent > 60 ? 60 : exponent));
}

// A number that no element of these 16 columns exceeds.
template <WeightForm kForm, int kPart>
SPRY_INLINE __m512 LargestOfPart(const std::byte* super, const std::byte* group, int column) {
  constexpr QuantFacts kFacts = FactsOf(kForm);
  constexpr float kLargestCode = kFacts.bias != 0 ? kFacts.bias : (1 << kFacts.bits) - 1;
  const __m512 scale = LoadScales<Avx512, kForm, kPart, false>(super, group, column);
  __m512 largest = _mm512_mul_ps(_mm512_abs_ps(scale), _mm512_set1_ps(kLargestCode));
  if constexpr (kFacts.minimum) {
    const __m512 minimum = LoadScales<Avx512, kForm, kPart, true>(super, group, column);
    largest = _mm512_add_ps(largest, _mm512_abs_ps(minimum));
  }
  return largest;
}

// Where group g of a quantised panel lies, and the scales of its scales.
template <WeightForm kForm>
SPRY_INLINE const std::byte* SuperAt(const std::byte* panel, int64_t g) {
  return panel + g / kSuperGroups * (SuperBytes(kForm) + kSuperGroups * GroupBytes(kForm));
}
template <WeightForm kForm>
SPRY_INLINE const std::byte* GroupAt(const std::byte* panel, int64_t g) {
  return panel + (g / kSuperGroups + 1) * SuperBytes(kForm) + g * GroupBytes(kForm);
}

// Of 16 columns and the k that share a scale, each twice.
struct HalfScales {
  __m512h d;
  __m512h m;
};

SPRY_INLINE __m512h LoadHalves(const std::byte* p) { return _mm512_loadu_ph(p); }
SPRY_INLINE __m512h LoadBytesAsHalves(const std::byte* p) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_cvtepi16_ph(_mm512_cvtepi8_epi16(bytes));
}

// The scales (or, kMinimum, the minima) of 32 columns times a power of two, which no f16 may hold.
template <WeightForm kForm, int kPart, bool kMinimum>
SPRY_INLINE __m512h LoadUnitScales(const std::byte* super, const std::byte* group,
                                   __m512h unit_log2) {
  constexpr QuantFacts kFacts = FactsOf(kForm);
  const std::byte* scales = group + GroupQuantBytes(kForm);
  constexpr int kFirst = kMinimum ? kPanelRows : 0;
  if constexpr (kFacts.scaled_scales) {
    constexpr int kParts = kGroup / kFacts.scale_group;
    const __m512h factors = LoadBytesAsHalves(scales + kParts * kFirst + kPart * kPanelRows);
    return _mm512_mul_ph(_mm512_scalef_ph(LoadHalves(super + kFirst * 2), unit_log2), factors);
  } else {
    return _mm512_scalef_ph(LoadHalves(scales + kFirst * 2), unit_log2);
  }
}

// Columns 16 c .. 16 c + 15 of 32, each twice.
SPRY_INLINE __m512h Twice(__m512h columns, int c) {
  const __m512i pairs = _mm512_set_epi16(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8,
                                         7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  const __m512i index = _mm512_add_epi16(pairs, _mm512_set1_epi16(static_cast<int16_t>(16 * c)));
  return (__m512h)_mm512_permutexvar_epi16(index, (__m512i)columns);
}

template <WeightForm kForm, int kPart>
SPRY_INLINE void LoadHalfScales(const std::byte* super, const std::byte* group, __m512h unit_log2,
                                HalfScales (&scales)[2]) {
  constexpr QuantFacts kFacts = FactsOf(kForm);
  const __m512h d = LoadUnitScales<kForm, kPart, false>(super, group, unit_log2);
  __m512h m = _mm512_mul_ph(d, _mm512_set1_ph(-kFacts.bias));
  if constexpr (kFacts.minimum) {
    m = LoadUnitScales<kForm, kPart, true>(super, group, unit_log2);
    if constexpr (kFacts.scaled_scales) m = _mm512_sub_ph(_mm512_setzero_ph(), m);
  }
  scales[0] = {Twice(d, 0), Twice(m, 0)};
  scales[1] = {Twice(d, 1), Twice(m, 1)};
}

// code - bias for 4-bit codes, twice over: a lookup takes 5 bits of an index.
template <WeightForm kForm>
SPRY_INLINE __m512i CodeTable() {
  alignas(64) static constexpr auto kTable = [] {
    struct {
      _Float16 values[32];
    } table = {};
    for (int i = 0; i < 32; ++i) {
      const int code = i % 16;
      table.values[i] = FactsOf(kForm).table ? kIq4Biased[code] - 128 : code - FactsOf(kForm).bias;
    }
    return table;
  }();
  return _mm512_load_si512(&kTable);
}

// Rounds the upper 11 bits of an f16 to 8 where a bf16 has them: shifts the magnitude right by 3,
// rounding halves up, and leaves the sign.
SPRY_INLINE void StorePairs(__m512h w, std::byte* out) {
  const __m512i shifted = _mm512_mulhrs_epi16((__m512i)w, _mm512_set1_epi16(1 << 12));
  const __m512i mask = _mm512_set1_epi16(static_cast<int16_t>(0x8fff));
  _mm512_store_si512(out, _mm512_and_si512(shifted, mask));
}

// Weights are fetched in two steps: a dozen groups ahead to the second cache, one ahead to the
// first. Unpacking and products take nearly as long as memory, and with one step of 4 KiB the two
// hardly overlap; three groups are too few for weights from the third cache (a step of one stream
// 3.8 ms instead of 3.15). Spread over the work: step i of n for one group.
inline constexpr int kFarGroups = 12;

SPRY_INLINE void PrefetchStep(const std::byte* group, int bytes, int i, int n) {
  const int lines = (bytes + 63) / 64;
  for (int line = lines * i / n; line < lines * (i + 1) / n; ++line) {
    __builtin_prefetch(group + (kFarGroups * lines + line) * 64, 0, 2);
    __builtin_prefetch(group + (lines + line) * 64, 0, 3);
  }
}

// A word of four 4-bit codes from each half of a group. A lookup takes the lowest bits of the
// halves of a lane: bytes 0 and 2, or a byte further on 1 and 3.
template <WeightForm kForm>
SPRY_INLINE void UnpackNibbles(const std::byte* words, __m512i table, const HalfScales& scales,
                               std::byte* out) {
  const auto store = [&](__m512i indices, int row) __attribute__((always_inline)) {
    const __m512h codes = (__m512h)_mm512_permutexvar_epi16(indices, table);
    if constexpr (FactsOf(kForm).minimum) {
      StorePairs(_mm512_fmadd_ph(codes, scales.d, scales.m), out + row * kPairBytes);
    } else {
      StorePairs(_mm512_mul_ph(codes, scales.d), out + row * kPairBytes);
    }
  };
  const __m512i even = _mm512_loadu_si512(words);
  const __m512i odd = _mm512_loadu_si512(words + 1);
  store(even, 0);
  store(odd, 1);
  store(_mm512_srli_epi16(even, 4), 8);
  store(_mm512_srli_epi16(odd, 4), 9);
}

// Four codes of a byte each.
SPRY_INLINE void UnpackBytes(__m512i codes, const HalfScales& scales, std::byte* out) {
  const __m512i even = _mm512_and_si512(codes, _mm512_set1_epi16(0xff));
  const __m512i odd = _mm512_srli_epi16(codes, 8);
  StorePairs(_mm512_fmadd_ph(_mm512_cvtepu16_ph(even), scales.d, scales.m), out);
  StorePairs(_mm512_fmadd_ph(_mm512_cvtepu16_ph(odd), scales.d, scales.m), out + kPairBytes);
}

template <WeightForm kForm, int kHalf, int kWord>
SPRY_INLINE void UnpackWord(const std::byte* codes, const HalfScales& scales, std::byte* out) {
  const __m512i word = LoadCodes<Avx512, kForm, kHalf, kWord>(codes);
  UnpackBytes(word, scales, out + (8 * kHalf + 2 * kWord) * kPairBytes);
}

// Group g of a quantised panel: 16 rows of pairs, 128 bytes apart.
template <WeightForm kForm>
SPRY_INLINE void UnpackGroup(const std::byte* panel, int64_t g, __m512h unit_log2, std::byte* out) {
  const std::byte* super = SuperAt<kForm>(panel, g);
  const std::byte* group = GroupAt<kForm>(panel, g);
  HalfScales first[2], second[2];
  LoadHalfScales<kForm, 0>(super, group, unit_log2, first);
  if constexpr (FactsOf(kForm).scale_group < kGroup) {
    LoadHalfScales<kForm, 1>(super, group, unit_log2, second);
  }
#pragma GCC unroll 2
  for (int c = 0; c < 2; ++c) {
    const std::byte* codes = group + c * kTileBytes;
    std::byte* tile = out + c * kTileBytes;
    const auto fetch = [&](int i) __attribute__((always_inline)) {
      PrefetchStep(group, GroupBytes(kForm), 4 * c + i, 8);
    };
    if constexpr (FactsOf(kForm).bits == 4) {
      const __m512i table = CodeTable<kForm>();
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) {
        fetch(v);
        UnpackNibbles<kForm>(codes + v * kWordBytes, table, first[c], tile + 2 * v * kPairBytes);
      }
    } else {
      const HalfScales& later = FactsOf(kForm).scale_group == kGroup ? first[c] : second[c];
      fetch(0);
      UnpackWord<kForm, 0, 0>(codes, first[c], tile);
      UnpackWord<kForm, 0, 1>(codes, first[c], tile);
      fetch(1);
      UnpackWord<kForm, 0, 2>(codes, first[c], tile);
      UnpackWord<kForm, 0, 3>(codes, first[c], tile);
      fetch(2);
      UnpackWord<kForm, 1, 0>(codes, later, tile);
      UnpackWord<kForm, 1, 1>(codes, later, tile);
      fetch(3);
      UnpackWord<kForm, 1, 2>(codes, later, tile);
      UnpackWord<kForm, 1, 3>(codes, later, tile);
    }
  }
}

}  // namespace spry
