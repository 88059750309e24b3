// One row's norm by one warp, the same bits wherever it is used: lane i sums pairs i, i + 32, ...
// of neighbouring elements, then the lanes are folded. Written for 16-bit rows of even width.
#pragma once

#include <cstdint>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "ops/linear.h"

namespace spry::cuda {

struct NormArgs16 {
  NormKind kind = NormKind::kNone;
  float epsilon = 0.0f;
  const float* weight = nullptr;
  const float* bias = nullptr;  // layer norm only
};

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

// What a warp can hold of a row in registers: 16 bytes a lane, this many times.
inline constexpr int kRowChunks = 16;
inline constexpr int kChunkElements = kWarpThreads * 8;
inline constexpr int32_t kMaxNormWidth = kRowChunks * kChunkElements;

// y [width] = norm(x [width]); width is a multiple of 8 and at most kMaxNormWidth. y, weight and
// bias may be shared memory.
template <typename T>
__device__ void NormalizeRow(const NormArgs16& norm, const T* x, T* y, int32_t width) {
  using Pair = typename PairOf<T>::Type;
  const int32_t first = static_cast<int32_t>(threadIdx.x) % kWarpThreads * 8;
  uint4 row[kRowChunks];
  const auto inside = [&](int c) { return first + c * kChunkElements < width; };
#pragma unroll
  for (int c = 0; c < kRowChunks; ++c) {
    if (inside(c)) row[c] = *reinterpret_cast<const uint4*>(x + first + c * kChunkElements);
  }
  // fn(chunk, pair, its two elements)
  const auto for_pairs = [&](const auto& fn) {
#pragma unroll
    for (int c = 0; c < kRowChunks; ++c) {
      if (!inside(c)) break;
      const Pair* pairs = reinterpret_cast<const Pair*>(&row[c]);
#pragma unroll
      for (int i = 0; i < 4; ++i) fn(c, i, ToFloats(pairs[i]));
    }
  };
  float mean = 0.0f;
  if (norm.kind == NormKind::kLayer) {
    float sum = 0.0f;
    for_pairs([&](int, int, float2 v) { sum += v.x + v.y; });
    mean = WarpSum(sum) / static_cast<float>(width);
  }
  float squares = 0.0f;
  for_pairs([&](int, int, float2 v) {
    squares = fmaf(v.x - mean, v.x - mean, squares);
    squares = fmaf(v.y - mean, v.y - mean, squares);
  });
  const float inverse = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(width) + norm.epsilon);
  for_pairs([&](int c, int i, float2 v) {
    const int32_t at = first + c * kChunkElements + 2 * i;
    const float2 weight = *reinterpret_cast<const float2*>(norm.weight + at);
    float2 bias = make_float2(0.0f, 0.0f);
    if (norm.kind == NormKind::kLayer) bias = *reinterpret_cast<const float2*>(norm.bias + at);
    *reinterpret_cast<Pair*>(y + at) =
        FromFloats(T{}, fmaf((v.x - mean) * inverse, weight.x, bias.x),
                   fmaf((v.y - mean) * inverse, weight.y, bias.y));
  });
}

}  // namespace spry::cuda
