// linear on tensor cores, for 16-bit activations and tiled weights (weight_tiles.h).
//
// Row-function rule: K is cut into kSegments runs of whole steps of 16, by K alone. A segment is
// one ascending chain of mma over its steps; segments are added in ascending order. Every kernel
// here keeps that, so rows do not depend on how many there are.
#pragma once

#include <cstdint>

#include "device/cuda/kernel.h"
#include "device/cuda/normalize.cuh"
#include "ops/activation.h"

namespace spry::cuda {

inline constexpr int kSegments = 8;

struct MmaLinearArgs {
  Matrix x;         // [rows, K]
  Matrix y;         // [rows, N]
  Matrix residual;  // data null: none
  Matrix normed;    // with a norm: room for [rows, K]
  const uint4* weight = nullptr;
  const float* bias = nullptr;
  int32_t outputs = 0;  // N
  int32_t depth = 0;    // K
  Activation activation = Activation::kNone;
  NormArgs16 norm;
};

LaunchFn ChooseMmaLinear(DType activation, DType output);

}  // namespace spry::cuda
