#include "ops/activation.h"

#include <fmt/format.h>

namespace spry {

Result<Activation> ParseActivation(std::string_view name) {
  if (name == "relu") return Activation::kRelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  return Unimplemented(
      fmt::format("the model's activation is \"{}\"; supported are relu and silu", name));
}

Tensor Activate(Tracer& tracer, const Tensor& x, Activation activation) {
  const Tensor y = tracer.NewBuffer("activation", x.rows, x.width, x.dtype);
  tracer.Emit({.id = OpId::kActivation,
               .inputs = {x},
               .outputs = {y},
               .params = OpParams::Of(ActivationParams{activation})});
  return y;
}

Tensor GatedActivate(Tracer& tracer, const Tensor& gate_up, Activation activation) {
  DimBinder dims(tracer, "gated_activation");
  const int64_t width = gate_up.width / 2;
  dims.Bind("2F", gate_up.width, "gate_up");
  dims.Bind("2F", width * 2, "twice half of it");
  const Tensor y = tracer.NewBuffer("gated", gate_up.rows, width, gate_up.dtype);
  tracer.Emit({.id = OpId::kGatedActivation,
               .inputs = {gate_up},
               .outputs = {y},
               .params = OpParams::Of(ActivationParams{activation})});
  return y;
}

}  // namespace spry
