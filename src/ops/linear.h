// linear: y = act(norm(x) W^T + bias) + residual, or
//   y = act(columns [0, F)) * columns [F, 2F) of x W^T + bias, where it is gated, N = 2F
//   x [rows, K]; W [N, K] plain or quantised, stacked from parts along N; bias [N] optional;
//   residual, y [rows, N], or y [rows, F].
// The Tracer emits plain linears; bias is given here, norm, activation, gate and residual are
// put in by the fusion pass (ops/fusion.h). Sum over K: its order depends on
// (N, K) and the weight alone, never on the number of rows.
#pragma once

#include <span>

#include "ops/activation.h"
#include "program/tracer.h"

namespace spry {

enum class NormKind : uint8_t { kNone, kLayer, kRms };

// inputs: x, then residual if any. weights: W, then bias if any, then the norm's weight and bias if
// any. outputs: y, then with a norm a buffer for the normalised x that a kernel may use.
struct LinearParams {
  NormKind norm = NormKind::kNone;
  float norm_epsilon = 0.0f;
  bool has_bias = false;
  bool has_residual = false;
  Activation activation = Activation::kNone;
  bool gated = false;  // W has two parts of F rows; no norm, no residual
};

struct LinearOutput {
  const char* name = "linear";  // of the buffer, for people
  bool logits = false;          // y is f32 whatever the activation dtype
};

Tensor Linear(Tracer& tracer, const Tensor& x, std::span<const WeightHandle> weights,
              std::span<const WeightHandle> biases, const LinearOutput& output);

}  // namespace spry
