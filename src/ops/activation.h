// activation:       y = act(x), [rows, N]
// gated_activation: y = act(x[:, :F]) * x[:, F:], x [rows, 2F], y [rows, F]   (gate first, then up)
#pragma once

#include <cstdint>
#include <string_view>

#include "program/tracer.h"

namespace spry {

enum class Activation : uint8_t { kNone, kRelu, kSilu };

struct ActivationParams {
  Activation activation = Activation::kNone;
};

// The activation that a config names; Unimplemented with the supported ones.
Result<Activation> ParseActivation(std::string_view name);

Tensor Activate(Tracer& tracer, const Tensor& x, Activation activation);
Tensor GatedActivate(Tracer& tracer, const Tensor& gate_up, Activation activation);

}  // namespace spry
