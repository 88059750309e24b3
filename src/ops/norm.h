// layer_norm: y = (x - mean) / sqrt(var + epsilon) * weight + bias
// rms_norm:   y = x / sqrt(mean(x^2) + epsilon) * weight
//   x, y [rows, E]; weight, bias [E]; row by row in f32, over E in order of the reference kernel.
#pragma once

#include "program/tracer.h"

namespace spry {

struct NormParams {
  float epsilon = 1e-5f;
};

Tensor LayerNorm(Tracer& tracer, const Tensor& x, const WeightHandle& weight,
                 const WeightHandle& bias, const NormParams& params);
Tensor RmsNorm(Tracer& tracer, const Tensor& x, const WeightHandle& weight,
               const NormParams& params);

}  // namespace spry
