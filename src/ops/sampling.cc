#include "ops/sampling.h"

namespace spry {

Tensor GatherSamples(Tracer& tracer, const Tensor& x) {
  const Tensor y = tracer.NewBuffer("last_hidden", RowDim::kSamples, x.width, x.dtype);
  tracer.Emit({.id = OpId::kGatherSamples, .inputs = {x}, .outputs = {y}});
  return y;
}

void SampleAndAdvance(Tracer& tracer, const Tensor& logits) {
  tracer.SetLogits(logits);
  tracer.Emit({.id = OpId::kSample,
               .inputs = {logits},
               .params = OpParams::Of(SampleParams{static_cast<int32_t>(logits.width)})});
  tracer.Emit({.id = OpId::kAdvance});
}

}  // namespace spry
