#include "device/cuda/row_kinds.h"

namespace spry::cuda {

RowKinds RowKindTracker::Update(const StepSlot& slot) {
  for (int32_t i = 0; i < slot.header->num_joins; ++i) {
    const RowParams& params = slot.joins[i].params;
    plain_[slot.joins[i].row] = params.top_k == 0 && params.top_p >= 1.0f && params.min_p <= 0.0f &&
                                params.num_logprobs < 0 && params.min_outputs == 0;
  }
  RowKinds kinds{.plain = true, .in_order = slot.header->num_tokens == slot.header->num_rows};
  for (int32_t r = 0; r < slot.header->num_rows; ++r) {
    const SlotRow& row = slot.rows[r];
    kinds.plain &= plain_[row.row] != 0 && row.num_samples <= 1 && row.next_token < 0;
    kinds.in_order &= row.sample_index == r;
  }
  return kinds;
}

}  // namespace spry::cuda
