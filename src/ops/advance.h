// advance: the last op of a step, per row. Feeds the row's sampled token back into its permanent
// state, so that the next step needs nothing from the host, and reports it, and per sample the
// log-probabilities that were asked for.
#pragma once

#include "ops/logprobs.h"
#include "program/step.h"

namespace spry {

// Updates row r of the step and fills its result (all fields that count says are valid).
SPRY_HOST_DEVICE inline void AdvanceRow(const StepState& state, int32_t r, RowResult& result) {
  const StagedRow& row = state.rows[r];
  result.count = 0;
  result.finish = FinishReason::kNone;
  result.saw_nan = false;
  if (!row.live) return;
  RowState& row_state = state.row_states[row.row];
  row_state.length = row.start + row.num_tokens;
  if (row.num_samples == 0) return;
  const int32_t last = row.sample_index + row.num_samples - 1;
  for (int32_t l = row.sample_index; l <= last; ++l) {
    if (!state.sampled[l].saw_nan) continue;
    row_state.finished = 1;
    result.saw_nan = true;
    result.finish = FinishReason::kError;
    return;
  }
  if (row.next_token >= 0) return;
  const RowParams& params = row_state.params;
  if (params.max_outputs == 0) {
    row_state.finished = 1;
    result.finish = FinishReason::kLength;
    return;
  }
  const Sampled& sampled = state.sampled[last];
  row_state.last_token = sampled.token;
  ++row_state.num_outputs;
  result.count = 1;
  result.tokens[0] = TokenId(sampled.token);
  for (int32_t i = 0; i < params.num_stop_ids; ++i) {
    if (params.stop_ids[i].value() == sampled.token) result.finish = FinishReason::kStop;
  }
  if (result.finish == FinishReason::kNone && row_state.num_outputs >= params.max_outputs) {
    result.finish = FinishReason::kLength;
  }
  row_state.finished = result.finish == FinishReason::kNone ? 0 : 1;
}

// Whether the log-probabilities of sample l go into the result ring.
SPRY_HOST_DEVICE inline bool ReportsLogprobs(const StepState& state, int32_t l) {
  const StagedRow& row = state.rows[state.sample_rows[l]];
  return row.live && !state.sampled[l].saw_nan && LogprobsWanted(state, l) >= 0;
}

}  // namespace spry
