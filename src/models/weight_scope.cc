#include "models/weight_scope.h"

#include "ops/linear.h"
#include "ops/sampling.h"

namespace spry {

WeightHandle WeightScope::operator()(std::string_view name, const Shape& shape) const {
  const std::string full = prefix_ + std::string(name);
  Result<WeightHandle> handle = weights_.Get(full, shape);
  if (handle.ok()) return *std::move(handle);
  tracer_.Fail(handle.status());
  return {.name = full, .shape = shape};
}

std::vector<WeightHandle> WeightScope::Stack(std::initializer_list<Part> parts,
                                             bool present) const {
  std::vector<WeightHandle> handles;
  if (!present) return handles;
  for (const Part& part : parts) handles.push_back((*this)(part.name, part.shape));
  return handles;
}

WeightScope WeightScope::Layer(int layer) const {
  return {tracer_, weights_, prefix_ + "layers." + std::to_string(layer) + "."};
}

void TraceHead(Tracer& tracer, const Tensor& x, const WeightHandle& lm_head) {
  const Tensor logits = Linear(tracer, x, {&lm_head, 1}, {}, {.name = "logits", .logits = true});
  SampleAndAdvance(tracer, logits);
}

}  // namespace spry
