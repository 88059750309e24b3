// The end of every Program: from hidden states to the next token, on the device.
//   gather_samples: y[l] = x[sample_tokens[l]], x [T, E], y [L, E]
//   sample:         picks a token for each l from logits [L, V] f32 by the row's RowParams
//   advance:        appends it to its row, moves length, evaluates stop ids and limits, marks
//                   finished rows as padding, writes the result ring (ops/advance.h)
//
// Order of sample, as vLLM V1: log-probabilities of the raw logits; stop ids masked before
// min_outputs; greedy rows (temperature 0): argmax, lowest id on ties; others: logits /
// temperature, min_p, top_k (ties with the k-th value stay), top_p (fewest tokens by falling
// probability, rising id, whose sum reaches top_p; at least one), then argmax of DrawScore
// (ops/random.h). A NaN among the logits sets saw_nan and picks nothing. Where the next token is
// known (sample_targets: a prompt goes on) its log-probabilities are reported and nothing is
// picked.
#pragma once

#include "program/tracer.h"

namespace spry {

struct SampleParams {
  int32_t vocab_size = 0;
};

Tensor GatherSamples(Tracer& tracer, const Tensor& x);
// Emits sample and advance.
void SampleAndAdvance(Tracer& tracer, const Tensor& logits);

}  // namespace spry
