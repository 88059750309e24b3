#include "ops/norm.h"

namespace spry {
namespace {

Tensor Norm(Tracer& tracer, OpId id, const Tensor& x, std::span<const WeightHandle> weights,
            const NormParams& params) {
  DimBinder dims(tracer, OpName(id));
  dims.Bind("E", x.width, "x");
  OpRecord op{.id = id, .inputs = {x}, .params = OpParams::Of(params)};
  for (const WeightHandle& weight : weights) {
    op.weights.Add(tracer.AddWeight({&weight, 1}));
    dims.Bind("E", weight.shape.rank() > 0 ? weight.shape[0] : 0, weight.name);
  }
  const Tensor y = tracer.NewBuffer("norm", x.rows, x.width, x.dtype);
  op.outputs.Add(y);
  tracer.Emit(op);
  return y;
}

}  // namespace

Tensor LayerNorm(Tracer& tracer, const Tensor& x, const WeightHandle& weight,
                 const WeightHandle& bias, const NormParams& params) {
  const WeightHandle weights[] = {weight, bias};
  return Norm(tracer, OpId::kLayerNorm, x, weights, params);
}

Tensor RmsNorm(Tracer& tracer, const Tensor& x, const WeightHandle& weight,
               const NormParams& params) {
  return Norm(tracer, OpId::kRmsNorm, x, {&weight, 1}, params);
}

}  // namespace spry
