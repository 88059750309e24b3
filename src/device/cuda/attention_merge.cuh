// How positions are cut in the backend "cuda", and how the parts of a softmax become one.
//
// Tile i of a segment of kKvSegment positions belongs to strand i mod kStrands. A strand has one
// maximum, that of all its scores; its output is one chain of products over its tiles. A segment is
// its strands merged in ascending order, a row its segments. Nothing else decides on a bit: which
// warp has which strands or rows, and in which order it comes to them, is a kernel's own affair.
#pragma once

#include <cmath>

#include "device/cuda/attention_tile.cuh"
#include "device/cuda/attention_units.cuh"

namespace spry::cuda {

inline constexpr int kStrandStep = kStrands * kTileKeys;       // positions
inline constexpr int kStrandTiles = kKvSegment / kStrandStep;  // at most

__device__ inline float Exp2(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

// What is known of a softmax after some positions: the largest score, counted in exponents of 2,
// and the sum of 2^(score - max). Where no position may be seen: -infinity and 0. No initialisers,
// since shared memory has none.
struct SoftmaxPart {
  float max;
  float sum;

  __device__ static SoftmaxPart Unseen() { return {-INFINITY, 0.0f}; }
};

// What the outputs of two parts count in that of both.
struct PartFactors {
  float first;
  float second;

  __device__ float Merged(float first_output, float second_output) const {
    return fmaf(first_output, first, second_output * second);
  }
};

// What may be taken from a score: itself, or 0 where nothing is seen.
__device__ inline float Finite(float max) { return max == -INFINITY ? 0.0f : max; }

// Appends the next part. One that has seen nothing changes nothing: the factors are 1 and 0.
__device__ inline PartFactors Append(SoftmaxPart& part, const SoftmaxPart& next) {
  const float max = fmaxf(part.max, next.max);
  const PartFactors factors = {Exp2(part.max - Finite(max)), Exp2(next.max - Finite(max))};
  part.sum = factors.Merged(part.sum, next.sum);
  part.max = max;
  return factors;
}

}  // namespace spry::cuda
