// Counts how deep an evaluation has gone, and refuses to go too deep for the stack.
#pragma once

#include <fmt/format.h>

#include "base/status.h"
#include "text/jinja/limits.h"

namespace spry::jinja {

class EvaluationDepth {
 public:
  explicit EvaluationDepth(int& depth) : depth_(depth) { ++depth_; }
  ~EvaluationDepth() { --depth_; }
  EvaluationDepth(const EvaluationDepth&) = delete;
  EvaluationDepth& operator=(const EvaluationDepth&) = delete;

  Status Check() const {
    if (depth_ <= kMaxEvaluationDepth) return {};
    return InvalidArgument(
        fmt::format("the template goes deeper than the limit of {}", kMaxEvaluationDepth));
  }

 private:
  int& depth_;
};

}  // namespace spry::jinja
