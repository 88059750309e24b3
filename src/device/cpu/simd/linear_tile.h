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

template <WeightForm kForm>
SPRY_INLINE int CorrectionOf(int32_t minus_8_sum) {
  if (kForm == WeightForm::kQ4_0) return minus_8_sum;
  if (kForm == WeightForm::kQ8_0) return minus_8_sum * 16;
  return 0;
}

// The same 4 activations in every lane.
template <typename V>
SPRY_INLINE typename V::Int Broadcast4(const int8_t* x) {
  int32_t word;
  memcpy(&word, x, 4);
  return V::SetInt(word);
}

// sums[r][c] = corrections + the group's products; `quants` points at the slice's first word.
template <typename V, WeightForm kForm, int R, int C>
SPRY_INLINE void DotGroup(const std::byte* quants, const int8_t* x, int64_t x_stride,
                          typename V::Int (&sums)[R][C]) {
  using I = typename V::Int;
  constexpr int kWordBytes = kPanelRows * 4;
  constexpr bool kNibbles = kForm != WeightForm::kQ8_0;
  constexpr int kWords = kNibbles ? 4 : 8;
  const auto multiply = [&](const I(&w)[C], int k) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const I a = Broadcast4<V>(x + r * x_stride + k);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = V::template Dot<kForm>(sums[r][c], w[c], a);
    }
  };
#pragma GCC unroll 8
  for (int v = 0; v < kWords; ++v) {
    I w[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) w[c] = V::LoadInt(quants + v * kWordBytes + c * V::kLanes * 4);
    if constexpr (kNibbles) {
      const I low = V::SetInt(0x0f0f0f0f);
      I part[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) part[c] = V::And(w[c], low);
      multiply(part, 4 * v);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) part[c] = V::And(V::template ShiftRight<4>(w[c]), low);
      multiply(part, 16 + 4 * v);
    } else {
      multiply(w, 4 * v);
    }
  }
}

// kQ8_0, kQ4_0, kQ4_1.
template <typename V, WeightForm kForm, int R, int C>
void QuantizedTile(const LinearTile& tile) {
  using F = typename V::Float;
  using I = typename V::Int;
  constexpr bool kMinimum = kForm == WeightForm::kQ4_1;
  const QuantizedRow row = MapQuantizedRow(tile.x, tile.k);
  const auto of_row = [&](const auto* p, int r) __attribute__((always_inline)) {
    return *reinterpret_cast<decltype(p)>(reinterpret_cast<const std::byte*>(p) +
                                          r * tile.x_stride);
  };
  const int64_t groups = tile.k / kGroup;
  for (int column = 0; column < kPanelRows && column < tile.columns; column += C * V::kLanes) {
    F sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = V::Zero();
    }
    const std::byte* group = tile.panel;
    for (int64_t g = 0; g < groups; ++g, group += GroupBytes(kForm)) {
      Prefetch(group, GroupBytes(kForm));
      I corrections[R];
      I dots[R][C];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        corrections[r] = V::SetInt(CorrectionOf<kForm>(of_row(row.minus_8_sum + g, r)));
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) dots[r][c] = V::DotStart(corrections[r]);
      }
      DotGroup<V, kForm, R, C>(group + column * 4, row.q + g * kGroup, tile.x_stride, dots);
      const std::byte* scales = group + GroupQuantBytes(kForm) + column * 2;
      F d[C];
      F m[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) {
        d[c] = V::LoadF16(scales + c * V::kLanes * 2);
        if (kMinimum) m[c] = V::LoadF16(scales + (kPanelRows + c * V::kLanes) * 2);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F scale = V::Set(of_row(row.scale + g, r));
        const F scaled_sum = V::Set(of_row(row.scaled_sum + g, r));
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
          const F dot = V::ToFloat(V::template DotEnd<kForm>(dots[r][c], corrections[r]));
          sums[r][c] = V::Fma(dot, V::Mul(d[c], scale), sums[r][c]);
          if (kMinimum) sums[r][c] = V::Fma(m[c], scaled_sum, sums[r][c]);
        }
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

template <typename V, WeightForm kForm, int C, int C1, int... kIndex>
void FillTiles(LinearKernels& kernels, std::integer_sequence<int, kIndex...>) {
  constexpr int form = static_cast<int>(kForm);
  kernels.tile_rows[form] = sizeof...(kIndex);
  ((kernels.tiles[form][kIndex] = TileOf < V, kForm, kIndex + 1, kIndex == 0 ? C1 : C > ()), ...);
}

// The tiles of one form. `kRows` rows by C vectors are what the registers hold; a single row takes
// C1 vectors, for more sums in flight.
template <typename V, WeightForm kForm, int kRows, int C, int C1 = C>
void SetTiles(LinearKernels& kernels) {
  static_assert(kRows <= kMaxTileRows);
  static_assert(kPanelRows % (C * V::kLanes) == 0 && kPanelRows % (C1 * V::kLanes) == 0);
  FillTiles<V, kForm, C, C1>(kernels, std::make_integer_sequence<int, kRows>());
}

}  // namespace spry
