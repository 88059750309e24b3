// Fetches weights by name below a prefix while tracing. A weight that is missing or misshapen fails
// the tracer; the handle returned then has the expected shape, so that tracing can go on.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "program/tracer.h"

namespace spry {

class WeightScope {
 public:
  WeightScope(Tracer& tracer, const Weights& weights, std::string prefix)
      : tracer_(tracer), weights_(weights), prefix_(std::move(prefix)) {}

  WeightHandle operator()(std::string_view name, const Shape& shape) const;
  // The same, stacked: all of `names` or, when `present` is false, none (a model without biases).
  struct Part {
    std::string_view name;
    Shape shape;
  };
  std::vector<WeightHandle> Stack(std::initializer_list<Part> parts, bool present = true) const;

  WeightScope Layer(int layer) const;  // "<prefix>layers.<layer>."

 private:
  Tracer& tracer_;
  const Weights& weights_;
  std::string prefix_;
};

// What every decoder ends in: lm_head over the sampled tokens' rows x [L, E], sample, advance.
void TraceHead(Tracer& tracer, const Tensor& x, const WeightHandle& lm_head);

}  // namespace spry
