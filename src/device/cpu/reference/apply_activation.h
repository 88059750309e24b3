// The activations, on one value. A NaN stays a NaN, so that a bad request is noticed.
#pragma once

#include "ops/activation.h"
#include "ops/math.h"

namespace spry::reference {

inline float ApplyActivation(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return x < 0.0f ? 0.0f : x;
    case Activation::kSilu: return Silu(x);
  }
  return x;
}

}  // namespace spry::reference
