// advance: the last op of a step, per row. Feeds the row's sampled token back into its permanent
// state, so that the next step needs nothing from the host, and reports it.
#pragma once

#include "ops/logit_rules.h"
#include "program/step.h"

namespace spry {

// Updates row r of the step and fills its result (all fields that count says are valid).
SPRY_HOST_DEVICE inline void AdvanceRow(const StepState& state, int32_t r, RowResult& result) {
  const StagedRow& row = state.rows[r];
  result.count = 0;
  result.finish = FinishReason::kNone;
  result.fault = RowFault::kNone;
  if (!row.live) return;
  RowState& row_state = state.row_states[row.row];
  row_state.length = row.start + row.num_tokens;
  if (row.sample_index < 0) return;
  const Sampled& sampled = state.sampled[row.sample_index];
  if (sampled.fault != RowFault::kNone) {
    row_state.finished = 1;
    result.fault = sampled.fault;
    result.finish = FinishReason::kError;
    return;
  }
  row_state.last_token = sampled.token;
  if (row_state.rule_slot >= 0) {
    NoteOutput(state.rule_slot(row_state.rule_slot), row_state.num_outputs, sampled.token);
  }
  ++row_state.num_outputs;
  result.count = 1;
  result.tokens[0] = TokenId(sampled.token);
  const RowParams& params = row_state.params;
  for (int32_t i = 0; i < params.num_stop_ids; ++i) {
    if (params.stop_ids[i].value() == sampled.token) result.finish = FinishReason::kStop;
  }
  if (result.finish == FinishReason::kNone && row_state.num_outputs >= params.max_outputs) {
    result.finish = FinishReason::kLength;
  }
  row_state.finished = result.finish == FinishReason::kNone ? 0 : 1;
  if (params.num_logprobs < 0) return;
  result.rank = sampled.rank;
  result.chosen = sampled.chosen;
  result.num_top = sampled.num_top;
  for (int32_t i = 0; i < sampled.num_top; ++i) result.top[i] = sampled.top[i];
}

}  // namespace spry
