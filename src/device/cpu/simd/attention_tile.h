// The inner loops of attention, written once over a vector type V (vec_*.h), in the order of
// reference/attention.cc:
//   scores   one chain of fma over D per (line, key); a lane is a key; then soft cap and alibi
//   weights  Exp(score - max), summed in 16 lanes by the key's position
//   output   one chain of fma over the keys per (line, element); a lane is an element of the value
// The loops over lines and vectors have compile-time bounds, so that sums stay in registers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "device/cpu/simd/always_inline.h"
#include "device/cpu/simd/attention_kernels.h"
#include "device/cpu/simd/prepare.h"
#include "device/cpu/simd/vec_math.h"
#include "ops/attention/attention.h"

namespace spry {

inline constexpr int kSumLanes = 16;

template <KvKind kKind>
inline constexpr int kKvBytes = kKind == KvKind::kF32 ? 4 : 2;

template <typename V, KvKind kKind>
SPRY_INLINE typename V::Float LoadKv(const std::byte* p) {
  if constexpr (kKind == KvKind::kBF16) return V::LoadBf16(p);
  if constexpr (kKind == KvKind::kF16) return V::LoadF16(p);
  return V::Load(reinterpret_cast<const float*>(p));
}

// The first or the second of two neighbouring vectors; bf16 ones lie in pairs (kv_tiles.h).
template <typename V, KvKind kKind, int kWhich>
SPRY_INLINE typename V::Float LoadOfPair(const std::byte* p) {
  if constexpr (kKind == KvKind::kBF16) {
    const typename V::Int both = V::LoadInt(p);
    if constexpr (kWhich == 0) return V::AsFloat(V::template ShiftLeft<16>(both));
    return V::AsFloat(V::And(both, V::SetInt(static_cast<int>(0xffff0000u))));
  } else {
    return LoadKv<V, kKind>(p + kWhich * V::kLanes * kKvBytes<kKind>);
  }
}

// C vectors of a value.
template <typename V, KvKind kKind, int C>
SPRY_INLINE void LoadVectors(const std::byte* p, typename V::Float (&v)[C]) {
  constexpr int kVectorBytes = V::kLanes * kKvBytes<kKind>;
  if constexpr (C % 2 == 0) {
#pragma GCC unroll 8
    for (int c = 0; c < C; c += 2) {
      v[c] = LoadOfPair<V, kKind, 0>(p + c * kVectorBytes);
      v[c + 1] = LoadOfPair<V, kKind, 1>(p + c * kVectorBytes);
    }
  } else {
    static_assert(C == 1);  // the last of an odd number of vectors is no pair
    v[0] = LoadKv<V, kKind>(p);
  }
}

// One element of T keys for L lines.
template <typename V, KvKind kKind, int kWhich, int L, int T>
SPRY_INLINE void AddProducts(const std::byte* const (&keys)[T], int64_t offset,
                             const float* const (&queries)[L], int64_t d,
                             typename V::Float (&sums)[L][T]) {
  typename V::Float key[T];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) key[t] = LoadOfPair<V, kKind, kWhich>(keys[t] + offset);
#pragma GCC unroll 8
  for (int l = 0; l < L; ++l) {
    const typename V::Float q = V::Set(queries[l][d + kWhich]);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[l][t] = V::Fma(q, key[t], sums[l][t]);
  }
}

// The scores of L lines and the keys of T tiles, from tile `first` on of `tiles`.
template <typename V, KvKind kKind, int L, int T>
SPRY_INLINE void ScoreTiles(const AttentionBlock& block, int64_t first, int64_t tiles) {
  using F = typename V::Float;
  constexpr int64_t kStep = V::kLanes * kKvBytes<kKind>;
  const std::byte* keys[T];
  const std::byte* next[T];  // to be fetched meanwhile: the hardware does not foresee a block's end
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
    keys[t] = block.keys[first + t];
    next[t] = block.keys[first + t + T < tiles ? first + t + T : first + t];
  }
  const float* queries[L];
#pragma GCC unroll 8
  for (int l = 0; l < L; ++l) queries[l] = block.queries[l];
  F sums[L][T];
#pragma GCC unroll 8
  for (int l = 0; l < L; ++l) {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sums[l][t] = V::Zero();
  }
  for (int64_t d = 0; d < block.head_dim; d += 2) {
    const int64_t offset = d * kStep;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      for (int i = 0; i < 2 * kStep; i += 64) __builtin_prefetch(next[t] + offset + i);
    }
    AddProducts<V, kKind, 0, L, T>(keys, offset, queries, d, sums);
    AddProducts<V, kKind, 1, L, T>(keys, offset, queries, d, sums);
  }
  const F scale = V::Set(block.scale);
#pragma GCC unroll 8
  for (int l = 0; l < L; ++l) {
    float* scores = block.scores + l * kKvSegment + first * V::kLanes;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) V::Store(scores + t * V::kLanes, V::Mul(scale, sums[l][t]));
  }
}

alignas(64) inline constexpr int32_t kLaneIndices[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                         8, 9, 10, 11, 12, 13, 14, 15};

// The soft cap, then alibi, on the scores of the keys from `key` on.
template <typename V>
SPRY_INLINE typename V::Float BendScore(const AttentionBlock& block, int line, int64_t key,
                                        typename V::Float score) {
  if (block.soft_cap > 0.0f) {
    const typename V::Float cap = V::Set(block.soft_cap);
    score = V::Mul(cap, VecTanh<V>(V::Div(score, cap)));
  }
  if (!block.has_alibi) return score;
  const int32_t distance = block.distances[line] + static_cast<int32_t>(key);
  const typename V::Int distances = V::AddInt(V::LoadInt(kLaneIndices), V::SetInt(distance));
  return V::Fma(V::Set(block.slopes[line]), V::ToFloat(distances), score);
}

// The same for all scores of a line.
template <typename V>
SPRY_INLINE void BendScores(const AttentionBlock& block, int line) {
  float* scores = block.scores + line * kKvSegment;
  const int32_t count = block.counts[line];
  for (int32_t i = block.starts[line] / V::kLanes * V::kLanes; i < count; i += V::kLanes) {
    V::Store(scores + i, BendScore<V>(block, line, i, V::Load(scores + i)));
  }
}

// Scores become weights; what lies before `start` or behind the line's last key becomes 0.
template <typename V>
SPRY_INLINE SoftmaxState Soften(float* scores, int64_t start, int64_t count) {
  using F = typename V::Float;
  const F lowest = V::Set(-INFINITY);
  F largest = lowest;
  int64_t i = start / V::kLanes * V::kLanes;
  if (i < start) {
    const F seen = V::SelectFirst(start - i, lowest, V::Load(scores + i));
    largest = V::Max(V::SelectFirst(count - i, seen, lowest), lowest);
    i += V::kLanes;
  }
  for (; i + V::kLanes <= count; i += V::kLanes) largest = V::Max(V::Load(scores + i), largest);
  if (i < count) {
    largest = V::Max(V::SelectFirst(count - i, V::Load(scores + i), lowest), largest);
  }
  const float max = V::Largest(largest);
  constexpr int kVectors = kSumLanes / V::kLanes;
  F lanes[kVectors];
  for (F& lane : lanes) lane = V::Zero();
  const F shift = V::Set(max);
  for (i = start / kSumLanes * kSumLanes; i < count; i += kSumLanes) {
#pragma GCC unroll 2
    for (int c = 0; c < kVectors; ++c) {
      float* at = scores + i + c * V::kLanes;
      F weight = VecExp<V>(V::Sub(V::Load(at), shift));
      if (i + kSumLanes > count) {
        weight = V::SelectFirst(count - i - c * V::kLanes, weight, V::Zero());
      }
      if (i < start) weight = V::SelectFirst(start - i - c * V::kLanes, V::Zero(), weight);
      V::Store(at, weight);
      lanes[c] = V::Add(lanes[c], weight);
    }
  }
  return {.max = max, .sum = V::FoldLanes(lanes)};
}

// The keys [begin, end) of the segment for one line alone.
template <typename V, KvKind kKind, int C>
SPRY_INLINE void WeighOwn(const AttentionBlock& block, int line, int64_t begin, int64_t end,
                          int64_t offset, typename V::Float (&sums)[C]) {
  using F = typename V::Float;
  const int64_t row_bytes = block.v_head_dim * kKvBytes<kKind>;
  for (int64_t j = begin; j < end; ++j) {
    const std::byte* value = block.values[j / V::kLanes] + j % V::kLanes * row_bytes + offset;
    const F weight = V::Set(block.scores[line * kKvSegment + j]);
    F v[C];
    LoadVectors<V, kKind, C>(value, v);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sums[c] = V::Fma(weight, v[c], sums[c]);
  }
}

// output[l][dim .. dim + C * lanes) for L lines: first the keys that a line sees alone because its
// window starts earlier, then those that all see, then those that it sees because it ends later. A
// zero weight for what a line does not see would not do, as 0 times an infinity is a NaN.
template <typename V, KvKind kKind, int L, int C>
SPRY_INLINE void WeighValues(const AttentionBlock& block, int64_t dim) {
  using F = typename V::Float;
  constexpr int64_t kVectorBytes = V::kLanes * kKvBytes<kKind>;
  const int64_t row_bytes = block.v_head_dim * kKvBytes<kKind>;
  const int64_t offset = dim * kKvBytes<kKind>;
  F sums[L][C];
#pragma GCC unroll 8
  for (int l = 0; l < L; ++l) {
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) sums[l][c] = V::Zero();
  }
  const int64_t begin = block.starts[L - 1];
  const int64_t end = block.counts[0];
#pragma GCC unroll 8
  for (int l = 0; l < L; ++l) {
    const int64_t own = begin < block.counts[l] ? begin : block.counts[l];
    WeighOwn<V, kKind, C>(block, l, block.starts[l], own, offset, sums[l]);
  }
  int64_t first = begin % V::kLanes;  // of the tile
  for (int64_t tile = begin / V::kLanes; tile * V::kLanes < end; ++tile, first = 0) {
    const std::byte* value = block.values[tile] + offset + first * row_bytes;
    const bool more = (tile + 1) * V::kLanes < end;
    const std::byte* next = block.values[more ? tile + 1 : tile] + offset + first * row_bytes;
    const float* weights = block.scores + tile * V::kLanes;
    const int64_t left = end - tile * V::kLanes;
    const int64_t count = left < V::kLanes ? left : V::kLanes;
    for (int64_t j = first; j < count; ++j, value += row_bytes, next += row_bytes) {
      F v[C];
      __builtin_prefetch(next);
      __builtin_prefetch(next + (C * kVectorBytes - 1));
      LoadVectors<V, kKind, C>(value, v);
#pragma GCC unroll 8
      for (int l = 0; l < L; ++l) {
        const F weight = V::Set(weights[l * kKvSegment + j]);
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) sums[l][c] = V::Fma(weight, v[c], sums[l][c]);
      }
    }
  }
  const F start = V::Set(block.first_segment ? 0.0f : -0.0f);  // as the reference's first merge
#pragma GCC unroll 8
  for (int l = 0; l < L; ++l) {
    const int64_t rest = begin > end ? begin : end;
    WeighOwn<V, kKind, C>(block, l, rest, block.counts[l], offset, sums[l]);
    float* out = block.output + l * block.output_stride + dim;
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) V::Store(out + c * V::kLanes, V::Add(sums[l][c], start));
  }
}

template <typename V, KvKind kKind, int L>
void Attend(AttentionBlock& block) {
  constexpr int kTiles = 4;
  const int64_t tiles = (block.counts[L - 1] + V::kLanes - 1) / V::kLanes;
  int64_t t = block.starts[0] / V::kLanes;
  for (; t + kTiles <= tiles; t += kTiles) ScoreTiles<V, kKind, L, kTiles>(block, t, tiles);
  for (; t < tiles; ++t) ScoreTiles<V, kKind, L, 1>(block, t, tiles);
  for (int l = 0; l < L; ++l) {
    if (block.soft_cap > 0.0f || block.has_alibi) BendScores<V>(block, l);
    block.states[l] = Soften<V>(block.scores + l * kKvSegment, block.starts[l], block.counts[l]);
  }
  int64_t dim = 0;
  for (; dim + 4 * V::kLanes <= block.v_head_dim; dim += 4 * V::kLanes) {
    WeighValues<V, kKind, L, 4>(block, dim);
  }
  // By two, as bf16 lies in pairs; only a last odd vector does not.
  for (; dim + 2 * V::kLanes <= block.v_head_dim; dim += 2 * V::kLanes) {
    WeighValues<V, kKind, L, 2>(block, dim);
  }
  if constexpr (V::kLanes == 16) {  // sizes are multiples of 16
    if (dim < block.v_head_dim) WeighValues<V, kKind, L, 1>(block, dim);
  }
}

template <typename V>
void MergeSegment(SoftmaxState& state, float* output, const SoftmaxState& next,
                  const float* next_output, int64_t v_head_dim) {
  using F = typename V::Float;
  const float max = state.max > next.max ? state.max : next.max;
  const F first = VecExp<V>(V::Set(state.max - max));
  const F second = VecExp<V>(V::Set(next.max - max));
  const F sum = V::Fma(V::Set(state.sum), first, V::Mul(V::Set(next.sum), second));
  state = {.max = max, .sum = V::First(sum)};
  for (int64_t d = 0; d < v_head_dim; d += V::kLanes) {
    const F added = V::Mul(V::Load(next_output + d), second);
    V::Store(output + d, V::Fma(V::Load(output + d), first, added));
  }
}

template <typename V>
void FinishLine(const SoftmaxState& state, const float* output, int64_t v_head_dim, float* out) {
  const typename V::Float inverse = V::Set(1.0f / state.sum);
  for (int64_t d = 0; d < v_head_dim; d += V::kLanes) {
    V::Store(out + d, V::Mul(V::Load(output + d), inverse));
  }
}

// V::kLanes floats in the cache's type.
template <typename V, KvKind kKind>
SPRY_INLINE void StoreKv(std::byte* p, typename V::Float x) {
  if constexpr (kKind == KvKind::kBF16) {
    V::StoreHalves(p, V::template ShiftRight<16>(RoundBitsToBf16<V>(x)));
  } else if constexpr (kKind == KvKind::kF16) {
    V::StoreF16(p, x);
  } else {
    V::Store(reinterpret_cast<float*>(p), x);
  }
}

template <typename V, KvKind kKind>
void WriteValue(const float* from, int64_t v_head_dim, int row, std::byte* tile) {
  std::byte* value = tile + row * v_head_dim * kKvBytes<kKind>;
  int64_t d = 0;
  if constexpr (kKind == KvKind::kBF16) {
    for (; d + 2 * V::kLanes <= v_head_dim; d += 2 * V::kLanes) {
      const auto first = V::template ShiftRight<16>(RoundBitsToBf16<V>(V::Load(from + d)));
      const auto second = V::And(RoundBitsToBf16<V>(V::Load(from + d + V::kLanes)),
                                 V::SetInt(static_cast<int>(0xffff0000u)));
      V::Store(reinterpret_cast<float*>(value + d * 2), V::AsFloat(V::Or(first, second)));
    }
  }
  for (; d < v_head_dim; d += V::kLanes) {
    StoreKv<V, kKind>(value + d * kKvBytes<kKind>, V::Load(from + d));
  }
}

template <typename V, KvKind kKind>
void WriteKey(const float* from, int64_t head_dim, int lane, std::byte* tile) {
  constexpr int kPieceBytes = kKind == KvKind::kF16 ? 2 : 4;  // what lies together: pairs of bf16
  constexpr int kPieces = V::kLanes * kKvBytes<kKind> / kPieceBytes;
  std::byte* at = tile + lane * kPieceBytes;
  for (int64_t d = 0; d < head_dim; d += V::kLanes) {
    alignas(64) std::byte elements[kPieces * kPieceBytes];
    StoreKv<V, kKind>(elements, V::Load(from + d));
    for (int i = 0; i < kPieces; ++i, at += V::kLanes * kPieceBytes) {
      memcpy(at, elements + i * kPieceBytes, kPieceBytes);
    }
  }
}

template <typename V, KvKind kKind, int... kIndex>
void FillKind(AttentionKernels& kernels, std::integer_sequence<int, kIndex...>) {
  constexpr int kind = static_cast<int>(kKind);
  ((kernels.attend[kind][kIndex] = Attend<V, kKind, kIndex + 1>), ...);
  kernels.write_key[kind] = WriteKey<V, kKind>;
  kernels.write_value[kind] = WriteValue<V, kKind>;
}

// `kLines` by 4 vectors are what the registers hold.
template <typename V, int kLines>
AttentionKernels MakeAttentionKernels() {
  static_assert(kLines <= kMaxBlockLines);
  AttentionKernels kernels = {
      .lanes = V::kLanes, .max_lines = kLines, .merge = MergeSegment<V>, .finish = FinishLine<V>};
  constexpr auto kIndices = std::make_integer_sequence<int, kLines>();
  FillKind<V, KvKind::kF32>(kernels, kIndices);
  FillKind<V, KvKind::kBF16>(kernels, kIndices);
  FillKind<V, KvKind::kF16>(kernels, kIndices);
  return kernels;
}

}  // namespace spry
