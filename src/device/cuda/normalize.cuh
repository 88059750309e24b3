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

// fn(i, elements i and i + 1) for the pairs of this lane.
template <typename T, typename Fn>
__device__ void ForPairs(const T* x, int32_t width, const Fn& fn) {
  const auto* pairs = reinterpret_cast<const typename PairOf<T>::Type*>(x);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpThreads;
#pragma unroll 4
  for (int32_t i = lane; i < width / 2; i += kWarpThreads) fn(2 * i, ToFloats(pairs[i]));
}

__device__ inline float WarpSum(float value) {
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, step);
  }
  return value;
}

// y [width] = norm(x [width]); y may be shared memory.
template <typename T>
__device__ void NormalizeRow(const NormArgs16& norm, const T* x, T* y, int32_t width) {
  float mean = 0.0f;
  if (norm.kind == NormKind::kLayer) {
    float sum = 0.0f;
    ForPairs(x, width, [&](int32_t, float2 v) { sum += v.x + v.y; });
    mean = WarpSum(sum) / static_cast<float>(width);
  }
  float squares = 0.0f;
  ForPairs(x, width, [&](int32_t, float2 v) {
    squares = fmaf(v.x - mean, v.x - mean, squares);
    squares = fmaf(v.y - mean, v.y - mean, squares);
  });
  const float inverse = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(width) + norm.epsilon);
  auto* out = reinterpret_cast<typename PairOf<T>::Type*>(y);
  ForPairs(x, width, [&](int32_t i, float2 v) {
    const float2 weight = *reinterpret_cast<const float2*>(norm.weight + i);
    float2 bias = make_float2(0.0f, 0.0f);
    if (norm.kind == NormKind::kLayer) bias = *reinterpret_cast<const float2*>(norm.bias + i);
    out[i / 2] = FromFloats(T{}, fmaf((v.x - mean) * inverse, weight.x, bias.x),
                            fmaf((v.y - mean) * inverse, weight.y, bias.y));
  });
}

}  // namespace spry::cuda
