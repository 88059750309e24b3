// stage: the first op of a step. Copies the step's slot to the fixed addresses, applies what
// changed since the last step, and fills in what only the device knows (the last token and the
// length of a decode row, and whether the row has finished). Written per item, so that a device may
// spread it over threads: first all joins and block writes, then all rows.
#pragma once

#include "program/step.h"

namespace spry {

SPRY_HOST_DEVICE inline void ApplyJoin(const StepState& state, const SlotJoin& join) {
  RowState& row = state.row_states[join.row];
  row.params = join.params;
  row.num_outputs = join.num_outputs;
  row.length = 0;
  row.last_token = 0;
  row.finished = 0;
}

SPRY_HOST_DEVICE inline void ApplyBlockWrite(const StepLimits& limits, const StepState& state,
                                             const SlotBlockWrite& write) {
  state.block_tables[int64_t{write.row} * limits.max_blocks_per_row + write.index] = write.block;
}

// Row r of the step, all but the arrays of tokens and samples.
SPRY_HOST_DEVICE inline StagedRow StageRow(const StepState& state, const SlotRow& slot_row,
                                           int32_t r) {
  const RowState& row_state = state.row_states[slot_row.row];
  StagedRow row;
  row.row = slot_row.row;
  row.query_start = slot_row.query_start;
  row.num_tokens = slot_row.num_tokens;
  row.start = slot_row.decode ? row_state.length : slot_row.start;
  row.sample_index = slot_row.sample_index;
  row.num_samples = slot_row.num_samples;
  row.next_token = slot_row.next_token;
  row.live = row_state.finished ? 0 : 1;
  state.rows[r] = row;
  return row;
}

// What is wanted of token i of row r, if its logits are.
SPRY_HOST_DEVICE inline void StageSample(const StepState& state, const StepSlot& slot,
                                         const StagedRow& row, int32_t r, int32_t i) {
  const int32_t sample = i - (row.num_tokens - row.num_samples);
  if (sample < 0) return;
  const int32_t l = row.sample_index + sample;
  const int32_t t = row.query_start + i;
  state.sample_rows[l] = r;
  state.sample_tokens[l] = t;
  state.sample_targets[l] = i + 1 < row.num_tokens ? slot.token_ids[t + 1] : row.next_token;
}

// Token i of row r, and its sample.
SPRY_HOST_DEVICE inline void StageToken(const StepState& state, const StepSlot& slot,
                                        const StagedRow& row, int32_t r, int32_t i) {
  const int32_t t = row.query_start + i;
  const bool decode = slot.rows[r].decode != 0;
  state.token_ids[t] =
      !row.live ? 0 : (decode ? state.row_states[row.row].last_token : slot.token_ids[t]);
  state.positions[t] = row.live ? row.start + i : 0;
  state.token_rows[t] = row.live ? r : -1;
  state.token_slots[t] = row.live ? row.row : -1;
  StageSample(state, slot, row, r, i);
}

}  // namespace spry
