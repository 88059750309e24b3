// The inner loops of linear, written once over a vector type V (vec_*.h).
//
// A tile is R rows by one panel. R and the number of vectors per slice C are compile-time numbers,
// so that sums stay in registers. Whatever R and C are, one output element always sees the same
// instructions in the same order over K: that makes rows independent of their neighbours.
//
// V adds to the vector interface, for quantised forms:
//   DotStart(c), Dot<form>(sum, w, x), DotEnd<form>(sum, c): per lane c + the sum over 4 k of
//   w (unsigned byte) * x (signed byte), exact. AVX2 adds c at the end, VNNI at the start.
// and for kBF16 DotPair(sum, w, x): per lane sum + w[0] x[0] + w[1] x[1], bf16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "device/cpu/simd/always_inline.h"
#include "device/cpu/simd/linear_kernels.h"
#include "device/cpu/simd/prepare.h"
#include "device/cpu/simd/vec_math.h"

namespace spry {

// How far ahead of its use a panel is fetched: long enough for memory, short enough to stay in the
// first cache.
inline constexpr int kPrefetchBytes = 4096;

SPRY_INLINE void Prefetch(const std::byte* p, int bytes) {
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(p + kPrefetchBytes + i);
}

// y for columns [column, column + C * lanes) of the panel.
template <typename V, int R, int C>
SPRY_INLINE void StoreTile(const LinearTile& tile, int column, typename V::Float (&sums)[R][C]) {
  using F = typename V::Float;
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    const int at = column + c * V::kLanes;
    const int64_t count = tile.columns - at;
    if (count <= 0) return;
    const bool full = count >= V::kLanes;
    const auto load = [&](const float* p) { return full ? V::Load(p) : V::LoadPart(p, count); };
    const F bias = tile.bias != nullptr ? load(tile.bias + at) : V::Zero();
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      F y = sums[r][c];
      if (tile.bias != nullptr) y = V::Add(y, bias);
      if (tile.activation == Activation::kRelu) y = V::SelectLess(y, V::Zero(), V::Zero(), y);
      if (tile.activation == Activation::kSilu) y = VecSilu<V>(y);
      if (tile.residual != nullptr) {
        y = V::Add(y, load(tile.residual + r * tile.residual_stride + at));
      }
      float* out = tile.y + r * tile.y_stride + at;
      full ? V::Store(out, y) : V::StorePart(out, count, y);
    }
  }
}

// The same 4 activations in every lane.
template <typename V>
SPRY_INLINE typename V::Int Broadcast4(const int8_t* x) {
  int32_t word;
  memcpy(&word, x, 4);
  return V::SetInt(word);
}

// Left by kBits, or right where it is negative.
template <typename V, int kBits>
SPRY_INLINE typename V::Int Shift(typename V::Int a) {
  if constexpr (kBits > 0) return V::template ShiftLeft<kBits>(a);
  if constexpr (kBits < 0) return V::template ShiftRight<-kBits>(a);
  return a;
}

// kIq4Values + 128.
alignas(16) inline constexpr uint8_t kIq4Biased[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                       129, 141, 153, 166, 181, 197, 217, 241};

inline constexpr int kWordBytes = kPanelRows * 4;

// Codes k = 16 half + 4 word .. + 3 of a group, a byte each, from the planes at `quants`
// (packed_weight.h).
template <typename V, WeightForm kForm, int kHalf, int kWord>
SPRY_INLINE typename V::Int LoadCodes(const std::byte* quants) {
  using I = typename V::Int;
  constexpr int kBits = FactsOf(kForm).bits;
  if constexpr (kBits == 8) return V::LoadInt(quants + (4 * kHalf + kWord) * kWordBytes);
  I codes = V::SetInt(0);
  if constexpr ((kBits & 4) != 0) {
    const I plane = V::LoadInt(quants + kWord * kWordBytes);
    codes = V::And(Shift<V, -4 * kHalf>(plane), V::SetInt(0x0f0f0f0f));
  }
  constexpr int kAt2 = kBits & 4;  // where the 2 bits go
  if constexpr ((kBits & 2) != 0) {
    const I plane = V::LoadInt(quants + (kAt2 + kHalf) * kWordBytes);
    const I bits = V::And(Shift<V, kAt2 - 2 * kWord>(plane), V::SetInt(0x03030303 << kAt2));
    codes = V::Or(codes, bits);
  }
  constexpr int kAt1 = kBits & 6;
  if constexpr ((kBits & 1) != 0) {
    const I plane = V::LoadInt(quants + kAt1 * kWordBytes);
    const I bits = V::And(Shift<V, kAt1 - 4 * kHalf - kWord>(plane), V::SetInt(0x01010101 << kAt1));
    codes = V::Or(codes, bits);
  }
  if constexpr (FactsOf(kForm).table) return V::LookUp(kIq4Biased, codes);
  return codes;
}

// Adds the products of one word of codes to `sums`.
template <typename V, WeightForm kForm, int kHalf, int kWord, int R, int C>
SPRY_INLINE void DotWord(const std::byte* quants, const int8_t* x, int64_t x_stride,
                         typename V::Int (&sums)[R][C]) {
  typename V::Int w[C];
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    w[c] = LoadCodes<V, kForm, kHalf, kWord>(quants + c * V::kLanes * 4);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const typename V::Int a = Broadcast4<V>(x + r * x_stride + 16 * kHalf + 4 * kWord);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sums[r][c] = V::template Dot<kForm>(sums[r][c], w[c], a);
  }
}

// Adds the products of a group, or of its half kPart, to `sums`; `quants` points at the slice's
// first word.
template <typename V, WeightForm kForm, int kPart, int R, int C>
SPRY_INLINE void DotGroup(const std::byte* quants, const int8_t* x, int64_t x_stride,
                          typename V::Int (&sums)[R][C]) {
  if constexpr (FactsOf(kForm).scale_group == kGroup) {
    DotWord<V, kForm, 0, 0>(quants, x, x_stride, sums);
    DotWord<V, kForm, 1, 0>(quants, x, x_stride, sums);
    DotWord<V, kForm, 0, 1>(quants, x, x_stride, sums);
    DotWord<V, kForm, 1, 1>(quants, x, x_stride, sums);
    DotWord<V, kForm, 0, 2>(quants, x, x_stride, sums);
    DotWord<V, kForm, 1, 2>(quants, x, x_stride, sums);
    DotWord<V, kForm, 0, 3>(quants, x, x_stride, sums);
    DotWord<V, kForm, 1, 3>(quants, x, x_stride, sums);
  } else {
    DotWord<V, kForm, kPart, 0>(quants, x, x_stride, sums);
    DotWord<V, kForm, kPart, 1>(quants, x, x_stride, sums);
    DotWord<V, kForm, kPart, 2>(quants, x, x_stride, sums);
    DotWord<V, kForm, kPart, 3>(quants, x, x_stride, sums);
  }
}

// The scales (or, kMinimum, the minima) of a group's part, for the lanes from `column` on.
template <typename V, WeightForm kForm, int kPart, bool kMinimum>
SPRY_INLINE typename V::Float LoadScales(const std::byte* super, const std::byte* group,
                                         int column) {
  constexpr QuantFacts kFacts = FactsOf(kForm);
  const std::byte* scales = group + GroupQuantBytes(kForm);
  constexpr int kFirst = kMinimum ? kPanelRows : 0;
  if constexpr (kFacts.scaled_scales) {
    // The product of an f16 and an int8 is exact.
    constexpr int kParts = kGroup / kFacts.scale_group;
    const std::byte* bytes = scales + kParts * kFirst + kPart * kPanelRows + column;
    return V::Mul(V::LoadF16(super + (kFirst + column) * 2), V::LoadBytes(bytes));
  } else {
    return V::LoadF16(scales + (kFirst + column) * 2);
  }
}

// p[0] of a row r of the tile, where p points into the first row.
template <typename T>
SPRY_INLINE T OfRow(const T* p, int r, int64_t stride) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(p) + r * stride);
}

// Continues the chains of R rows with group g, or its half kPart.
template <typename V, WeightForm kForm, int kPart, int R, int C>
SPRY_INLINE void AddGroup(const QuantizedRow& row, int64_t stride, int64_t g,
                          const std::byte* super, const std::byte* group, int column,
                          typename V::Float (&sums)[R][C]) {
  using F = typename V::Float;
  using I = typename V::Int;
  constexpr QuantFacts kFacts = FactsOf(kForm);
  constexpr bool kHalves = kFacts.scale_group < kGroup;
  I corrections[R];
  I dots[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    int32_t correction = 0;
    if constexpr (kHalves) {
      correction = -kFacts.bias * OfRow(row.half_sums + 2 * g + kPart, r, stride);
    } else if constexpr (kFacts.bias != 0) {
      correction = kFacts.bias / 8 * OfRow(row.minus_8_sum + g, r, stride);
    }
    corrections[r] = V::SetInt(correction);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) dots[r][c] = V::DotStart(corrections[r]);
  }
  DotGroup<V, kForm, kPart>(group + column * 4, row.q + g * kGroup, stride, dots);
  F d[C];
  F m[C];
#pragma GCC unroll 8
  for (int c = 0; c < C; ++c) {
    const int at = column + c * V::kLanes;
    d[c] = LoadScales<V, kForm, kPart, /*kMinimum=*/false>(super, group, at);
    if constexpr (kFacts.minimum) {
      m[c] = LoadScales<V, kForm, kPart, /*kMinimum=*/true>(super, group, at);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const float x_scale = OfRow(row.scale + g, r, stride);
    const F scale = V::Set(x_scale);
    F scaled_sum = V::Zero();
    if constexpr (kFacts.minimum && kHalves) {
      const int32_t sum = OfRow(row.half_sums + 2 * g + kPart, r, stride);
      scaled_sum = V::Set(x_scale * static_cast<float>(sum));
    } else if constexpr (kFacts.minimum) {
      scaled_sum = V::Set(OfRow(row.scaled_sum + g, r, stride));
    }
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const F dot = V::ToFloat(V::template DotEnd<kForm>(dots[r][c], corrections[r]));
      sums[r][c] = V::Fma(dot, V::Mul(d[c], scale), sums[r][c]);
      if constexpr (kFacts.minimum && kFacts.scaled_scales) {
        sums[r][c] = V::NegFma(m[c], scaled_sum, sums[r][c]);
      } else if constexpr (kFacts.minimum) {
        sums[r][c] = V::Fma(m[c], scaled_sum, sums[r][c]);
      }
    }
  }
}

// All quantised forms. Groups ascending, halves of a group likewise.
template <typename V, WeightForm kForm, int R, int C>
void QuantizedTile(const LinearTile& tile) {
  const QuantizedRow row = MapQuantizedRow(tile.x, tile.k);
  const int64_t groups = tile.k / kGroup;
  for (int column = 0; column < kPanelRows && column < tile.columns; column += C * V::kLanes) {
    typename V::Float sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = V::Zero();
    }
    const std::byte* group = tile.panel;
    const std::byte* super = nullptr;
    for (int64_t g = 0; g < groups; ++g, group += GroupBytes(kForm)) {
      if (FactsOf(kForm).scaled_scales && g % kSuperGroups == 0) {
        super = group;
        group += SuperBytes(kForm);
      }
      Prefetch(group, GroupBytes(kForm));
      AddGroup<V, kForm, 0>(row, tile.x_stride, g, super, group, column, sums);
      if constexpr (FactsOf(kForm).scale_group < kGroup) {
        AddGroup<V, kForm, 1>(row, tile.x_stride, g, super, group, column, sums);
      }
    }
    StoreTile<V, R, C>(tile, column, sums);
  }
}

// kF32, kF16: one chain of fma per element, K ascending.
template <typename V, WeightForm kForm, int R, int C>
void FloatTile(const LinearTile& tile) {
  using F = typename V::Float;
  constexpr int kBytes = kForm == WeightForm::kF32 ? 4 : 2;
  for (int column = 0; column < kPanelRows && column < tile.columns; column += C * V::kLanes) {
    F sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = V::Zero();
    }
    const std::byte* w = tile.panel + column * kBytes;
    const std::byte* x = tile.x;
    for (int64_t k = 0; k < tile.k; ++k, w += kPanelRows * kBytes, x += 4) {
      Prefetch(w, kPanelRows * kBytes);
      F weights[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        const std::byte* p = w + c * V::kLanes * kBytes;
        weights[c] =
            kForm == WeightForm::kF32 ? V::Load(reinterpret_cast<const float*>(p)) : V::LoadF16(p);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F a = V::Set(*reinterpret_cast<const float*>(x + r * tile.x_stride));
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) sums[r][c] = V::Fma(a, weights[c], sums[r][c]);
      }
    }
    StoreTile<V, R, C>(tile, column, sums);
  }
}

// kBF16: pairs of k ascending.
template <typename V, int R, int C>
void Bf16Tile(const LinearTile& tile) {
  using F = typename V::Float;
  using I = typename V::Int;
  const int64_t pairs = (tile.k + 1) / 2;
  for (int column = 0; column < kPanelRows && column < tile.columns; column += C * V::kLanes) {
    F sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = V::Zero();
    }
    const std::byte* w = tile.panel + column * 4;
    const int8_t* x = reinterpret_cast<const int8_t*>(tile.x);
    for (int64_t j = 0; j < pairs; ++j, w += kPanelRows * 4, x += 4) {
      Prefetch(w, kPanelRows * 4);
      I weights[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) weights[c] = V::LoadInt(w + c * V::kLanes * 4);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const I a = Broadcast4<V>(x + r * tile.x_stride);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) sums[r][c] = V::DotPair(sums[r][c], weights[c], a);
      }
    }
    StoreTile<V, R, C>(tile, column, sums);
  }
}

using TileFn = void (*)(const LinearTile& tile);

template <typename V, WeightForm kForm, int R, int C>
constexpr TileFn TileOf() {
  if constexpr (IsQuantizedForm(kForm)) {
    return QuantizedTile<V, kForm, R, C>;
  } else if constexpr (kForm == WeightForm::kBF16) {
    return Bf16Tile<V, R, C>;
  } else {
    return FloatTile<V, kForm, R, C>;
  }
}

// Panel by panel, so that the weights stay in the first cache while the rows pass, in tiles of at
// most kRows rows by C vectors; a single row takes C1 vectors, for more sums in flight.
template <typename V, WeightForm kForm, int C, int C1, int... kIndex>
void MultiplyTiles(const PanelRun& run, std::integer_sequence<int, kIndex...>) {
  constexpr TileFn kTiles[] = {TileOf < V, kForm, kIndex + 1, kIndex == 0 ? C1 : C > ()...};
  constexpr int64_t kRows = sizeof...(kIndex);
  const int64_t num_tiles = (run.rows + kRows - 1) / kRows;
  for (int64_t panel = 0; panel < run.num_panels(); ++panel) {
    for (int64_t i = 0; i < num_tiles; ++i) {
      // Rows are spread evenly over the tiles.
      const int64_t row = run.rows * i / num_tiles;
      const int64_t count = run.rows * (i + 1) / num_tiles - row;
      kTiles[count - 1](TileAt(run, panel, row));
    }
  }
}

template <typename V, WeightForm kForm, int kRows, int C, int C1>
void Multiply(const PanelRun& run) {
  MultiplyTiles<V, kForm, C, C1>(run, std::make_integer_sequence<int, kRows>());
}

// The kernels of one form. `kRows` rows by C vectors are what the registers hold.
template <typename V, WeightForm kForm, int kRows, int C, int C1 = C>
void SetTiles(LinearKernels& kernels) {
  static_assert(kPanelRows % (C * V::kLanes) == 0 && kPanelRows % (C1 * V::kLanes) == 0);
  FormKernel& kernel = kernels.forms[static_cast<int>(kForm)];
  kernel = {.multiply = Multiply<V, kForm, kRows, C, C1>};
  if constexpr (IsQuantizedForm(kForm)) kernel.rows = {QuantizeRow<V>, kQuantizedGroupBytes};
  if constexpr (kForm == WeightForm::kBF16) kernel.rows = {RoundRow<V>, kRoundedGroupBytes};
}

}  // namespace spry
