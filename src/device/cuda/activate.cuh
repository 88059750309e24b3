// The activation functions in kernels (ops/activation.h). A NaN stays a NaN.
#pragma once

#include "ops/activation.h"
#include "ops/math.h"

namespace spry::cuda {

__device__ inline float ApplyActivation(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return x < 0.0f ? 0.0f : x;
    case Activation::kSilu: return Silu(x);
  }
  return x;
}

}  // namespace spry::cuda
