#include "ops/logit_rules.h"

#include <algorithm>

namespace spry {

void AdjustRow(const RuleSlot& slot, const RowState& row, std::span<const float> logits) {
  const RuleHeader& rules = *slot.header;
  const int64_t vocab_size = static_cast<int64_t>(logits.size());
  std::ranges::copy(logits, slot.logits);
  for (int64_t w = 0; w < MaskWords(vocab_size); ++w) {
    if (TouchedIds(slot, w) == 0) continue;  // mostly
    const int64_t begin = w * kIdsPerMaskWord;
    const int64_t end = std::min(begin + kIdsPerMaskWord, vocab_size);
    for (int64_t i = begin; i < end; ++i) {
      slot.logits[i] = AdjustLogit(slot, static_cast<int32_t>(i), logits[i]);
    }
  }
  for (int32_t i = 0; i < rules.num_biases; ++i) {
    const int32_t id = slot.biases[i].token.value();
    slot.logits[id] = AdjustLogit(slot, id, logits[id] + slot.biases[i].bias);
  }
  for (int32_t i = 0; i < rules.num_bad_words; ++i) {
    const int32_t id = ForbiddenByBadWord(slot, row.num_outputs, i);
    if (id >= 0) slot.logits[id] = -INFINITY;
  }
  if (row.num_outputs >= row.params.min_outputs) return;
  for (int32_t i = 0; i < row.params.num_stop_ids; ++i) {
    slot.logits[row.params.stop_ids[i].value()] = -INFINITY;
  }
}

}  // namespace spry
