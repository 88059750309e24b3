// advance: the last op of a step, per row. Feeds the row's sampled token back into its permanent
// state, so that the next step needs nothing from the host, and reports it, and per sample the
// log-probabilities that were asked for.
#pragma once

#include "ops/logit_rules.h"
#include "ops/logprobs.h"
#include "program/step.h"

namespace spry {

// What is known of a row before anything is sampled.
struct AdvancingRow {
  StagedRow row;
  int32_t max_outputs = 0;
  int32_t num_stop_ids = 0;
  int32_t num_outputs = 0;
  int32_t rule_slot = -1;
};

SPRY_HOST_DEVICE inline AdvancingRow RowToAdvance(const StepState& state, int32_t r) {
  const StagedRow row = state.rows[r];
  const RowState& row_state = state.row_states[row.row];
  return {.row = row,
          .max_outputs = row_state.params.max_outputs,
          .num_stop_ids = row_state.params.num_stop_ids,
          .num_outputs = row_state.num_outputs,
          .rule_slot = row_state.rule_slot};
}

// What came of a row's samples: its token, and the first fault.
struct RowSample {
  int32_t token = 0;
  RowFault fault = RowFault::kNone;
};

SPRY_HOST_DEVICE inline RowSample SampleOfRow(const StepState& state, const StagedRow& row) {
  RowSample sample;
  for (int32_t i = 0; i < row.num_samples; ++i) {
    const Sampled& sampled = state.sampled[row.sample_index + i];
    sample.token = sampled.token;
    if (sample.fault == RowFault::kNone) sample.fault = sampled.fault;
  }
  return sample;
}

// Updates a row of the step and fills its result (all fields that count says are valid). Reads what
// it needs before it writes anything: on a card each read that had to wait for a write would cost
// the step part of a microsecond.
SPRY_HOST_DEVICE inline void AdvanceRow(const StepState& state, const AdvancingRow& advancing,
                                        const RowSample& sample, RowResult& result) {
  const StagedRow& row = advancing.row;
  result.count = 0;
  result.finish = FinishReason::kNone;
  result.fault = RowFault::kNone;
  if (!row.live) return;
  RowState& row_state = state.row_states[row.row];
  if (row.num_samples == 0) {
    row_state.length = row.start + row.num_tokens;
    return;
  }
  result.fault = sample.fault;
  const bool failed = sample.fault != RowFault::kNone;
  const int32_t max_outputs = advancing.max_outputs;
  const bool draws = row.next_token < 0 && max_outputs > 0 && !failed;
  if (draws && advancing.num_outputs + 1 >= max_outputs) result.finish = FinishReason::kLength;
  for (int32_t i = 0; draws && i < advancing.num_stop_ids; ++i) {
    if (row_state.params.stop_ids[i].value() == sample.token) result.finish = FinishReason::kStop;
  }
  if (row.next_token < 0 && max_outputs == 0) result.finish = FinishReason::kLength;
  if (failed) result.finish = FinishReason::kError;

  row_state.length = row.start + row.num_tokens;
  if (result.finish != FinishReason::kNone) row_state.finished = 1;
  if (!draws) return;
  row_state.last_token = sample.token;
  row_state.num_outputs = advancing.num_outputs + 1;
  result.count = 1;
  result.tokens[0] = TokenId(sample.token);
  if (advancing.rule_slot >= 0) {
    NoteOutput(state.rule_slot(advancing.rule_slot), advancing.num_outputs, sample.token);
  }
}

// Row r of a step of which every sample lies in `sampled`.
SPRY_HOST_DEVICE inline void AdvanceRow(const StepState& state, int32_t r, RowResult& result) {
  const AdvancingRow advancing = RowToAdvance(state, r);
  AdvanceRow(state, advancing, SampleOfRow(state, advancing.row), result);
}

// Whether the log-probabilities of sample l go into the result ring.
SPRY_HOST_DEVICE inline bool ReportsLogprobs(const StepState& state, int32_t l) {
  const StagedRow& row = state.rows[state.sample_rows[l]];
  return row.live && state.sampled[l].fault == RowFault::kNone && LogprobsWanted(state, l) >= 0;
}

}  // namespace spry
