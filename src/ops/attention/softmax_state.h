// The algebra of attention over cut-up KV: what is known of a softmax after some of its keys, and
// how two such parts become one. The same formulas, hence the same bits, on every device.
//
//   max = largest score; sum = sum_j exp(score_j - max); output[d] = sum_j exp(score_j - max)
//   v_j[d]
//
// Merge, earlier part first: max = larger of both; a = Exp(first.max - max),
// b = Exp(second.max - max); sum = fma(first.sum, a, second.sum * b), output likewise. An empty
// state (max -inf, zeros) may come first. At the end output * (1 / sum).
#pragma once

#include "ops/math.h"

namespace spry {

struct SoftmaxState {
  float max = -INFINITY;
  float sum = 0.0f;
};

// The factors of both outputs; `first` becomes the merged state.
struct MergeFactors {
  float first = 0.0f;
  float second = 0.0f;
};

SPRY_HOST_DEVICE inline MergeFactors Merge(SoftmaxState& first, const SoftmaxState& second) {
  const float max = first.max > second.max ? first.max : second.max;
  const MergeFactors factors = {Exp(first.max - max), Exp(second.max - max)};
  first.sum = fmaf(first.sum, factors.first, second.sum * factors.second);
  first.max = max;
  return factors;
}

SPRY_HOST_DEVICE inline float MergeOutput(const MergeFactors& factors, float first, float second) {
  return fmaf(first, factors.first, second * factors.second);
}

}  // namespace spry
