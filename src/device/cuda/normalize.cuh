// One row's norm by one warp, the same bits wherever it is used: lane i sums pairs i, i + 32, ...
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

__device__ inline float WarpSum(float value) {
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
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

// y [width] = norm(x [width]); width is a multiple of 8 and at most kChunks * kChunkElements. y may
// be shared memory. scale_of(chunk, first element): a NormScale.
template <int kChunks, typename T, typename ScaleOf>
__device__ void NormalizeRow(const NormArgs16& norm, const T* x, T* y, int32_t width,
                             const ScaleOf& scale_of) {
  using Pair = typename PairOf<T>::Type;
  const int32_t first = static_cast<int32_t>(threadIdx.x) % kWarpThreads * 8;
  uint4 row[kChunks];
  const auto inside = [&](int c) { return first + c * kChunkElements < width; };
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (inside(c)) row[c] = *reinterpret_cast<const uint4*>(x + first + c * kChunkElements);
  }
  // A lane beyond the width has zeros, which change no sum.
  float values[kChunks][8];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const Pair* pairs = reinterpret_cast<const Pair*>(&row[c]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 v = inside(c) ? ToFloats(pairs[i]) : make_float2(0.0f, 0.0f);
      values[c][2 * i] = v.x;
      values[c][2 * i + 1] = v.y;
    }
  }
  if (norm.kind == NormKind::kLayer) {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < 8; e += 2) sum += values[c][e] + values[c][e + 1];
    }
    const float mean = WarpSum(sum) / static_cast<float>(width);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < 8; ++e) values[c][e] = inside(c) ? values[c][e] - mean : 0.0f;
    }
  }
  // Four chains, for their latency.
  float squares[4] = {};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      squares[e % 4] = fmaf(values[c][e], values[c][e], squares[e % 4]);
    }
  }
  const float total = WarpSum((squares[0] + squares[1]) + (squares[2] + squares[3]));
  const float inverse = 1.0f / sqrtf(total / static_cast<float>(width) + norm.epsilon);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (!inside(c)) break;
    const NormScale scale = scale_of(c, first + c * kChunkElements);
    Pair* pairs = reinterpret_cast<Pair*>(&row[c]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int e = 2 * i;
      pairs[i] =
          FromFloats(T{}, fmaf(values[c][e] * inverse, scale.weight[e], scale.bias[e]),
                     fmaf(values[c][e + 1] * inverse, scale.weight[e + 1], scale.bias[e + 1]));
    }
    *reinterpret_cast<uint4*>(y + first + c * kChunkElements) = row[c];
  }
}

}  // namespace spry::cuda
