// activation:       y = act(x), [rows, N]
// gated_activation: y = act(x[:, :F]) * x[:, F:], x [rows, 2F], y [rows, F]   (gate first, then up)
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/math.h"
#include "program/tracer.h"

namespace spry {

enum class Activation : uint8_t { kNone, kRelu, kSilu };

// On one value, for every device. A NaN stays a NaN, so that a bad request is noticed.
SPRY_HOST_DEVICE inline float ApplyActivation(Activation activation, float x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return x < 0.0f ? 0.0f : x;
    case Activation::kSilu: return Silu(x);
  }
  return x;
}

struct ActivationParams {
  Activation activation = Activation::kNone;
};

// The activation that a config names; Unimplemented with the supported ones.
Result<Activation> ParseActivation(std::string_view name);

Tensor Activate(Tracer& tracer, const Tensor& x, Activation activation);
Tensor GatedActivate(Tracer& tracer, const Tensor& gate_up, Activation activation);

}  // namespace spry
