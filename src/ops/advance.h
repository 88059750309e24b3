// advance: the last op of a step, per row. Feeds the row's sampled token back into its permanent
// state, so that the next step needs nothing from the host, and reports it, and per sample the
// log-probabilities that were asked for.
#pragma once

#include "ops/logit_rules.h"
#include "ops/logprobs.h"
#include "program/step.h"

namespace spry {

// Updates row r of the step and fills its result (all fields that count says are valid). Reads what
// it needs before it writes anything: on a card each read that had to wait for a write would cost
// the step part of a microsecond.
SPRY_HOST_DEVICE inline void AdvanceRow(const StepState& state, int32_t r, RowResult& result) {
  const StagedRow row = state.rows[r];
  result.count = 0;
  result.finish = FinishReason::kNone;
  result.fault = RowFault::kNone;
  if (!row.live) return;
  RowState& row_state = state.row_states[row.row];
  if (row.num_samples == 0) {
    row_state.length = row.start + row.num_tokens;
    return;
  }
  const RowParams& params = row_state.params;
  const int32_t max_outputs = params.max_outputs, num_stop_ids = params.num_stop_ids;
  const int32_t num_outputs = row_state.num_outputs, rule_slot = row_state.rule_slot;
  const int32_t last = row.sample_index + row.num_samples - 1;
  const int32_t token = state.sampled[last].token;
  for (int32_t l = row.sample_index; l <= last && result.fault == RowFault::kNone; ++l) {
    result.fault = state.sampled[l].fault;
  }
  const bool failed = result.fault != RowFault::kNone;
  const bool draws = row.next_token < 0 && max_outputs > 0 && !failed;
  if (draws && num_outputs + 1 >= max_outputs) result.finish = FinishReason::kLength;
  for (int32_t i = 0; draws && i < num_stop_ids; ++i) {
    if (params.stop_ids[i].value() == token) result.finish = FinishReason::kStop;
  }
  if (row.next_token < 0 && max_outputs == 0) result.finish = FinishReason::kLength;
  if (failed) result.finish = FinishReason::kError;

  row_state.length = row.start + row.num_tokens;
  if (result.finish != FinishReason::kNone) row_state.finished = 1;
  if (!draws) return;
  row_state.last_token = token;
  row_state.num_outputs = num_outputs + 1;
  result.count = 1;
  result.tokens[0] = TokenId(token);
  if (rule_slot >= 0) NoteOutput(state.rule_slot(rule_slot), num_outputs, token);
}

// Whether the log-probabilities of sample l go into the result ring.
SPRY_HOST_DEVICE inline bool ReportsLogprobs(const StepState& state, int32_t l) {
  const StagedRow& row = state.rows[state.sample_rows[l]];
  return row.live && state.sampled[l].fault == RowFault::kNone && LogprobsWanted(state, l) >= 0;
}

}  // namespace spry
