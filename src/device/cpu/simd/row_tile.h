// The loops of the row kernels, written once over a vector type V (vec_*.h). The order of every sum
// is that of reference/lanes.h; a fused multiply-add stands where the reference has one.
//
// V adds to the vector interface, for rope_pairs and block types:
//   Twice(x): lanes 0, 0, 1, 1 ... of the first half; SwapPairs(x): lanes 1, 0, 3, 2 ...;
//   NegateEven(x); LoadNibbles<shift>(p): of the bytes at p, the low (0) or high (4) nibbles as
//   floats; FirstF16(p): one half as a float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cpu/simd/always_inline.h"
#include "device/cpu/simd/prepare.h"
#include "device/cpu/simd/row_kernels.h"
#include "device/cpu/simd/vec_math.h"
#include "tensor/dequantize.h"

namespace spry {

inline constexpr int kFoldLanes = 16;

// Any number of lanes: 0 where count ends.
template <typename V>
SPRY_INLINE typename V::Float LoadSome(const float* p, int64_t count) {
  if (count >= V::kLanes) return V::Load(p);
  return count > 0 ? V::LoadPart(p, count) : V::Zero();
}

template <typename V>
SPRY_INLINE void StoreSome(float* p, int64_t count, typename V::Float x) {
  if (count >= V::kLanes) {
    V::Store(p, x);
  } else {
    V::StorePart(p, count, x);
  }
}

// The sum over x in lanes of `term(sum, vector, lanes that count)`, which leaves sums as they are
// behind the end.
template <typename V, typename Term>
SPRY_INLINE float SumRow(const float* x, int64_t width, const Term& term) {
  constexpr int kVectors = kFoldLanes / V::kLanes;
  typename V::Float lanes[kVectors];
#pragma GCC unroll 2
  for (int c = 0; c < kVectors; ++c) lanes[c] = V::Zero();
  for (int64_t i = 0; i < width; i += kFoldLanes) {
#pragma GCC unroll 2
    for (int c = 0; c < kVectors; ++c) {
      const int64_t at = i + c * V::kLanes;
      lanes[c] = term(lanes[c], LoadSome<V>(x + at, width - at), width - at);
    }
  }
  return V::FoldLanes(lanes);
}

template <typename V>
SPRY_INLINE typename V::Float InverseRoot(float mean_square, float epsilon) {
  return V::Div(V::Set(1.0f), V::Sqrt(V::Set(mean_square + epsilon)));
}

template <typename V>
void LayerNormRow(const NormRow& row) {
  using F = typename V::Float;
  const float count = static_cast<float>(row.width);
  const float mean = SumRow<V>(
                         row.x, row.width, [](F sum, F x, int64_t) __attribute__((always_inline)) {
                           return V::Add(sum, x);
                         }) /
                     count;
  const F shift = V::Set(mean);
  const float squares = SumRow<V>(
      row.x, row.width, [shift](F sum, F x, int64_t left) __attribute__((always_inline)) {
        F d = V::Sub(x, shift);
        if (left < V::kLanes) d = V::SelectFirst(left, d, V::Zero());
        return V::Fma(d, d, sum);
      });
  const F inverse = InverseRoot<V>(squares / count, row.epsilon);
  for (int64_t i = 0; i < row.width; i += V::kLanes) {
    const int64_t left = row.width - i;
    const F x = V::Mul(V::Sub(LoadSome<V>(row.x + i, left), shift), inverse);
    const F y = V::Fma(x, LoadSome<V>(row.weight + i, left), LoadSome<V>(row.bias + i, left));
    StoreSome<V>(row.y + i, left, y);
  }
}

template <typename V>
void RmsNormRow(const NormRow& row) {
  using F = typename V::Float;
  const float squares = SumRow<V>(
      row.x, row.width,
      [](F sum, F x, int64_t) __attribute__((always_inline)) { return V::Fma(x, x, sum); });
  const F inverse = InverseRoot<V>(squares / static_cast<float>(row.width), row.epsilon);
  for (int64_t i = 0; i < row.width; i += V::kLanes) {
    const int64_t left = row.width - i;
    const F x = V::Mul(LoadSome<V>(row.x + i, left), inverse);
    StoreSome<V>(row.y + i, left, V::Mul(x, LoadSome<V>(row.weight + i, left)));
  }
}

template <typename V>
void RopeHalves(const RopeHeads& rope) {
  using F = typename V::Float;
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t i = 0; i < half; i += V::kLanes) {
    const int64_t left = half - i;
    const F cosines = LoadSome<V>(rope.table + i, left);
    const F sines = LoadSome<V>(rope.table + half + i, left);
    float* first = rope.heads + i;
    for (int h = 0; h < rope.num_heads; ++h, first += rope.head_dim) {
      const F a = LoadSome<V>(first, left);
      const F b = LoadSome<V>(first + half, left);
      StoreSome<V>(first, left, V::Fma(a, cosines, V::Negate(V::Mul(b, sines))));
      StoreSome<V>(first + half, left, V::Fma(b, cosines, V::Mul(a, sines)));
    }
  }
}

template <typename V>
void RopePairs(const RopeHeads& rope) {
  using F = typename V::Float;
  constexpr int64_t kPairs = V::kLanes / 2;
  const int64_t half = rope.rotary_dim / 2;
  for (int64_t i = 0; i < half; i += kPairs) {
    const int64_t left = half - i < kPairs ? half - i : kPairs;
    const F cosines = V::Twice(V::LoadPart(rope.table + i, left));
    const F sines = V::Twice(V::LoadPart(rope.table + half + i, left));
    float* pairs = rope.heads + 2 * i;
    for (int h = 0; h < rope.num_heads; ++h, pairs += rope.head_dim) {
      const F x = LoadSome<V>(pairs, 2 * left);
      const F crossed = V::NegateEven(V::Mul(V::SwapPairs(x), sines));
      StoreSome<V>(pairs, 2 * left, V::Fma(x, cosines, crossed));
    }
  }
}

template <typename V, Activation kActivation>
SPRY_INLINE typename V::Float ActivateVector(typename V::Float x) {
  if constexpr (kActivation == Activation::kRelu) return V::SelectLess(x, V::Zero(), V::Zero(), x);
  if constexpr (kActivation == Activation::kSilu) return VecSilu<V>(x);
  return x;
}

template <typename V, Activation kActivation>
void ActivateRow(const float* x, const float* up, int64_t count, float* y) {
  using F = typename V::Float;
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const int64_t left = count - i;
    F value = ActivateVector<V, kActivation>(LoadSome<V>(x + i, left));
    if (up != nullptr) value = V::Mul(value, LoadSome<V>(up + i, left));
    StoreSome<V>(y + i, left, value);
  }
}

template <typename V>
void AddRow(const float* a, const float* b, int64_t count, float* y) {
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const int64_t left = count - i;
    StoreSome<V>(y + i, left, V::Add(LoadSome<V>(a + i, left), LoadSome<V>(b + i, left)));
  }
}

// ---- weights' rows as floats ----

template <typename V>
void DequantizeF32(const std::byte* row, int64_t count, float* y) {
  memcpy(y, row, count * sizeof(float));
}

// kF16, kBF16: the last elements through a buffer, as a vector would read behind the row.
template <typename V, DType kDType>
void DequantizeHalves(const std::byte* row, int64_t count, float* y) {
  const auto load = [](const void* p) __attribute__((always_inline)) {
    return kDType == DType::kF16 ? V::LoadF16(p) : V::LoadBf16(p);
  };
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) V::Store(y + i, load(row + i * 2));
  if (i == count) return;
  uint16_t rest[V::kLanes] = {};
  memcpy(rest, row + i * 2, (count - i) * 2);
  V::StorePart(y + i, count - i, load(rest));
}

template <typename V>
SPRY_INLINE typename V::Float BroadcastF16(const std::byte* p) {
  return V::Set(V::FirstF16(p));
}

// kQ4_0, kQ4_1: scale * (q - zero) + offset, a multiply and an add; kQ4_0 adds -0, which changes
// nothing.
template <typename V, DType kDType>
void DequantizeQ4(const std::byte* row, int64_t count, float* y) {
  using F = typename V::Float;
  constexpr bool kMinimum = kDType == DType::kQ4_1;
  constexpr int kHeader = kMinimum ? 4 : 2;
  const F zero = V::Set(kMinimum ? 0.0f : 8.0f);
  for (int64_t at = 0; at < count; at += kGroup, row += kHeader + kGroup / 2, y += kGroup) {
    const F scale = BroadcastF16<V>(row);
    const F offset = kMinimum ? BroadcastF16<V>(row + 2) : V::Set(-0.0f);
    for (int i = 0; i < kGroup / 2; i += V::kLanes) {
      const F low = V::template LoadNibbles<0>(row + kHeader + i);
      const F high = V::template LoadNibbles<4>(row + kHeader + i);
      V::Store(y + i, V::Add(V::Mul(scale, V::Sub(low, zero)), offset));
      V::Store(y + kGroup / 2 + i, V::Add(V::Mul(scale, V::Sub(high, zero)), offset));
    }
  }
}

template <typename V>
void DequantizeQ8(const std::byte* row, int64_t count, float* y) {
  for (int64_t at = 0; at < count; at += kGroup, row += 2 + kGroup, y += kGroup) {
    const typename V::Float scale = BroadcastF16<V>(row);
    for (int i = 0; i < kGroup; i += V::kLanes) {
      V::Store(y + i, V::Mul(scale, V::LoadBytes(row + 2 + i)));
    }
  }
}

// The other block types: exact, element by element. An embedding row is read once per token.
template <DType kDType>
void DequantizeBlocks(const std::byte* row, int64_t count, float* y) {
  DequantizeRow(kDType, row, count, y);
}

template <DType... kDTypes>
void SetDequantizeBlocks(RowKernels& kernels) {
  ((kernels.dequantize[static_cast<int>(kDTypes)] = DequantizeBlocks<kDTypes>), ...);
}

template <typename V, DType kDType>
void RoundInPlace(float* x, int64_t count) {
  using F = typename V::Float;
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const int64_t left = count - i;
    const F value = LoadSome<V>(x + i, left);
    F rounded;
    if constexpr (kDType == DType::kBF16) {
      const auto upper =
          V::And(RoundBitsToBf16<V>(value), V::SetInt(static_cast<int>(0xffff0000u)));
      rounded = V::AsFloat(upper);
    } else {
      alignas(64) uint16_t halves[V::kLanes];
      V::StoreF16(halves, value);
      rounded = V::LoadF16(halves);
    }
    StoreSome<V>(x + i, left, rounded);
  }
}

template <typename V>
RowKernels MakeRowKernels() {
  RowKernels kernels = {.layer_norm = LayerNormRow<V>,
                        .rms_norm = RmsNormRow<V>,
                        .rope_halves = RopeHalves<V>,
                        .rope_pairs = RopePairs<V>,
                        .add = AddRow<V>};
  kernels.activate[static_cast<int>(Activation::kNone)] = ActivateRow<V, Activation::kNone>;
  kernels.activate[static_cast<int>(Activation::kRelu)] = ActivateRow<V, Activation::kRelu>;
  kernels.activate[static_cast<int>(Activation::kSilu)] = ActivateRow<V, Activation::kSilu>;
  kernels.dequantize[static_cast<int>(DType::kF32)] = DequantizeF32<V>;
  kernels.dequantize[static_cast<int>(DType::kF16)] = DequantizeHalves<V, DType::kF16>;
  kernels.dequantize[static_cast<int>(DType::kBF16)] = DequantizeHalves<V, DType::kBF16>;
  kernels.dequantize[static_cast<int>(DType::kQ4_0)] = DequantizeQ4<V, DType::kQ4_0>;
  kernels.dequantize[static_cast<int>(DType::kQ4_1)] = DequantizeQ4<V, DType::kQ4_1>;
  kernels.dequantize[static_cast<int>(DType::kQ8_0)] = DequantizeQ8<V>;
  SetDequantizeBlocks<DType::kQ5_0, DType::kQ5_1, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K,
                      DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS>(kernels);
  kernels.round[static_cast<int>(DType::kF16)] = RoundInPlace<V, DType::kF16>;
  kernels.round[static_cast<int>(DType::kBF16)] = RoundInPlace<V, DType::kBF16>;
  return kernels;
}

}  // namespace spry
