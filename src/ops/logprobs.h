// Which log-probabilities a sample owes (ops/sampling.h).
#pragma once

#include "program/step.h"

namespace spry {

// How many of the likeliest tokens sample l reports beside its own; -1: it reports nothing.
SPRY_HOST_DEVICE inline int32_t LogprobsWanted(const StepState& state, int32_t l) {
  const StagedRow& row = state.rows[state.sample_rows[l]];
  const RowParams& params = state.row_states[row.row].params;
  return state.sample_targets[l] < 0 ? params.num_logprobs : params.num_prompt_logprobs;
}

}  // namespace spry
