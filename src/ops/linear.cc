#include "ops/linear.h"

namespace spry {

Tensor Linear(Tracer& tracer, const Tensor& x, std::span<const WeightHandle> weights,
              std::span<const WeightHandle> biases, const LinearOutput& output) {
  DimBinder dims(tracer, "linear");
  const WeightId weight = tracer.AddWeight(weights);
  const WeightRecord& record = tracer.weight(weight);
  const int64_t n = record.rows;
  dims.Bind("K", x.width, "x");
  dims.Bind("K", record.columns, record.name());
  OpRecord op{.id = OpId::kLinear,
              .inputs = {x},
              .weights = {weight},
              .params = OpParams::Of(LinearParams{.has_bias = !biases.empty()})};
  if (!biases.empty()) {
    const WeightId bias = tracer.AddWeight(biases);
    dims.Bind("N", n, weights.front().name);
    dims.Bind("N", tracer.weight(bias).rows, biases.front().name);
    op.weights.Add(bias);
  }
  const Tensor y = tracer.NewBuffer(output.name, x.rows, n,
                                    output.logits ? DType::kF32 : tracer.options().activation);
  op.outputs.Add(y);
  tracer.Emit(op);
  return y;
}

}  // namespace spry
