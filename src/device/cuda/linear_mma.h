// linear on tensor cores, for 16-bit activations and tiled weights (weight_tiles.h).
//
// Row-function rule: K is cut into kSegments runs of whole tiles of 32, by K alone. A segment is
// one ascending chain of mma over its tiles; segments are added in ascending order. Every kernel
// here keeps that, so rows do not depend on how many there are.
#pragma once

#include <cstdint>

#include "device/cuda/draw.h"
#include "device/cuda/kernel.h"
#include "ops/activation.h"
#include "ops/linear.h"

namespace spry::cuda {

inline constexpr int kSegments = 8;
// Of a row that is normed on the way in: what a warp can hold in registers.
inline constexpr int32_t kMaxNormWidth = 4096;

// What the linear that makes a program's logits does besides.
struct LogitsPlan {
  int32_t drawn_rows = 0;  // up to so many rows it scores the logits that it makes (draw.cuh)
  bool gathers = false;    // where rows are in order, takes x from before gather_samples
};

struct NormArgs16 {
  NormKind kind = NormKind::kNone;
  float epsilon = 0.0f;
  float inverse_width = 0.0f;
  const float* weight = nullptr;
  const float* bias = nullptr;  // layer norm only
};

struct MmaLinearArgs {
  Matrix x;           // [rows, K]
  Matrix y;           // [rows, N]
  Matrix residual;    // data null: none
  Matrix normed;      // with a norm: room for [rows, K]
  Matrix ungathered;  // where gather_samples took x from; data null: x was not gathered
  const uint4* weight = nullptr;
  const float* bias = nullptr;
  int32_t outputs = 0;  // N
  int32_t depth = 0;    // K
  Activation activation = Activation::kNone;
  NormArgs16 norm;
  std::byte* best_draws = nullptr;  // y is the logits and draws are collected there
  DrawArgs draw;                    // of a launch
};

// Up to how many rows of logits are drawn where they are made, from rows of `depth` elements.
int32_t MostDrawnRows(int64_t depth, bool warpgroups);

LaunchFn ChooseMmaLinear(DType activation, DType output);
// The two halves, compiled apart.
LaunchFn ChooseMmaLinearF16(DType output);
LaunchFn ChooseMmaLinearBf16(DType output);

}  // namespace spry::cuda
