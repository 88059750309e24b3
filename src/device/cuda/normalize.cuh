// A row's norm by one warp, the same bits wherever it is used: lane i sums pairs i, i + 32, ...
// of neighbouring elements, then the lanes are folded. Written for 16-bit rows of even width.
#pragma once

#include <cstdint>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/linear_mma.h"

namespace spry::cuda {

__device__ inline float2 ToFloats(__half2 pair) { return __half22float2(pair); }
__device__ inline float2 ToFloats(__nv_bfloat162 pair) { return __bfloat1622float2(pair); }
__device__ inline __half2 FromFloats(F16, float a, float b) { return __floats2half2_rn(a, b); }
__device__ inline __nv_bfloat162 FromFloats(Bf16, float a, float b) {
  return __floats2bfloat162_rn(a, b);
}

template <typename T>
struct PairOf {
  using Type = __half2;
};
template <>
struct PairOf<Bf16> {
  using Type = __nv_bfloat162;
};

// Each value becomes its sum over the lanes.
template <int kCount>
__device__ void WarpSums(float (&values)[kCount]) {
#pragma unroll
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += __shfl_xor_sync(0xffffffffu, values[i], step);
  }
}

inline constexpr int kChunkElements = kWarpThreads * 8;
inline constexpr int kMaxRowChunks = kMaxNormWidth / kChunkElements;

__device__ inline void LoadFloats8(const float* p, float (&out)[8]) {
  const float4 a = *reinterpret_cast<const float4*>(p);
  const float4 b = *reinterpret_cast<const float4*>(p + 4);
  out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
  out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

// This lane's weights and biases of one chunk, [first, first + 8).
struct NormScale {
  float weight[8];
  float bias[8];

  __device__ void Load(const NormArgs16& norm, int32_t first) {
    LoadFloats8(norm.weight + first, weight);
    if (norm.kind == NormKind::kLayer) {
      LoadFloats8(norm.bias + first, bias);
    } else {
#pragma unroll
      for (int e = 0; e < 8; ++e) bias[e] = 0.0f;
    }
  }
};

// This lane's part of a row as it lies in memory.
template <int kChunks>
struct RowChunks {
  uint4 bits[kChunks];

  template <typename T>
  __device__ void Load(const T* x, int32_t width) {
    const int32_t first = static_cast<int32_t>(threadIdx.x) % kWarpThreads * 8;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int32_t at = first + c * kChunkElements;
      bits[c] = at < width ? *reinterpret_cast<const uint4*>(x + at) : make_uint4(0, 0, 0, 0);
    }
  }
  template <typename T>
  __device__ void Widen(float (&values)[kChunks][8]) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const auto* pairs = reinterpret_cast<const typename PairOf<T>::Type*>(&bits[c]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 v = ToFloats(pairs[i]);
        values[c][2 * i] = v.x;
        values[c][2 * i + 1] = v.y;
      }
    }
  }
};

// This lane's 8 elements of a chunk, scaled.
template <typename T>
__device__ uint4 Scaled(const float (&values)[8], float factor, const NormScale& scale) {
  using Pair = typename PairOf<T>::Type;
  uint4 bits;
  Pair* pairs = reinterpret_cast<Pair*>(&bits);
#pragma unroll
  for (int e = 0; e < 8; e += 2) {
    pairs[e / 2] = FromFloats(T{}, fmaf(values[e] * factor, scale.weight[e], scale.bias[e]),
                              fmaf(values[e + 1] * factor, scale.weight[e + 1], scale.bias[e + 1]));
  }
  return bits;
}

// norm(rows[m]), all [width], of which this lane hands on 8 elements at a time: put(m, first
// element, bits). width is a multiple of 8 and at most kChunks * kChunkElements. scale_of(chunk,
// first element): a NormScale, asked for after await_scales().
template <typename T, int kRows, int kChunks, typename ScaleOf, typename AwaitScales, typename Put>
__device__ void NormalizeRows(const NormArgs16& norm, RowChunks<kChunks> (&rows)[kRows],
                              int32_t width, const ScaleOf& scale_of,
                              const AwaitScales& await_scales, const Put& put) {
  const int32_t lane_first = static_cast<int32_t>(threadIdx.x) % kWarpThreads * 8;
  const auto inside = [&](int c) { return lane_first + c * kChunkElements < width; };
  // A lane beyond the width has zeros, which change no sum.
  float values[kRows][kChunks][8];
#pragma unroll
  for (int m = 0; m < kRows; ++m) rows[m].template Widen<T>(values[m]);
  if (norm.kind == NormKind::kLayer) {
    float sums[kRows] = {};
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < 8; e += 2) {
#pragma unroll
        for (int m = 0; m < kRows; ++m) sums[m] += values[m][c][e] + values[m][c][e + 1];
      }
    }
    WarpSums(sums);
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      const float mean = sums[m] * norm.inverse_width;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
#pragma unroll
        for (int e = 0; e < 8; ++e) values[m][c][e] -= mean;
        if (width == kChunks * kChunkElements) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e) values[m][c][e] = inside(c) ? values[m][c][e] : 0.0f;
      }
    }
  }
  float totals[kRows];
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    float squares[4] = {};  // four chains, for their latency
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        squares[e % 4] = fmaf(values[m][c][e], values[m][c][e], squares[e % 4]);
      }
    }
    totals[m] = (squares[0] + squares[1]) + (squares[2] + squares[3]);
  }
  WarpSums(totals);
#pragma unroll
  for (int m = 0; m < kRows; ++m) {
    totals[m] = rsqrtf(fmaf(totals[m], norm.inverse_width, norm.epsilon));
  }
  await_scales();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (!inside(c)) break;
    const int32_t first = lane_first + c * kChunkElements;
    const NormScale scale = scale_of(c, first);
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      put(m, first, Scaled<T>(values[m][c], totals[m], scale));
    }
  }
}

// One row of x, its scale straight from memory; y may be shared memory.
template <int kChunks, typename T>
__device__ void NormalizeRow(const NormArgs16& norm, const T* x, T* y, int32_t width) {
  RowChunks<kChunks> row[1];
  row[0].Load(x, width);
  const auto scale_of = [&norm](int, int32_t first) {
    NormScale scale;
    scale.Load(norm, first);
    return scale;
  };
  NormalizeRows<T>(
      norm, row, width, scale_of, [] {},
      [y](int, int32_t first, const uint4& bits) { *reinterpret_cast<uint4*>(y + first) = bits; });
}

}  // namespace spry::cuda
