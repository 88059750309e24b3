// Rules on logits (api/logit_rules.h) as functions of one id, so that every device spreads them
// over its threads and gets the same bits: each operation below is rounded on its own, as in
// vLLM's arithmetic (builds forbid contraction).
//
// Order, as vLLM V1: allowed ids, bad words, stop ids before min_outputs, bias, repetition,
// frequency, presence. Minus infinity survives every step behind a mask, so AdjustRow applies the
// lists of forbidden ids last.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "program/rule_slot.h"
#include "program/step.h"

namespace spry {

SPRY_HOST_DEVICE inline bool HasBit(const uint32_t* words, int32_t id) {
  return (words[id / kIdsPerMaskWord] >> id % kIdsPerMaskWord & 1) != 0;
}

// The ids of word w of the masks whose logits AdjustLogit may change, bias apart.
SPRY_HOST_DEVICE inline uint32_t TouchedIds(const RuleSlot& slot, int64_t w) {
  const uint32_t penalised = slot.header->penalises != 0 ? slot.seen[w] : 0;
  return slot.header->restricts != 0 ? penalised | ~slot.allowed[w] : penalised;
}

// An id's logit by all rules but the bad words; `logit` is finite or minus infinity, and already
// has the id's bias.
SPRY_HOST_DEVICE inline float AdjustLogit(const RuleSlot& slot, int32_t id, float logit) {
  const RuleHeader& rules = *slot.header;
  if (rules.restricts != 0 && !HasBit(slot.allowed, id)) return -INFINITY;
  if (logit == -INFINITY) return logit;
  if (rules.penalises != 0 && HasBit(slot.seen, id)) {
    const float penalty = rules.repetition_penalty;
    logit = logit > 0.0f ? logit / penalty : logit * penalty;
    const int32_t count = slot.counts[id];
    if (count > 0) {
      logit = logit - rules.frequency_penalty * static_cast<float>(count);
      logit = logit - rules.presence_penalty;
    }
  }
  return logit > kMaxRuledLogit    ? kMaxRuledLogit
         : logit < -kMaxRuledLogit ? -kMaxRuledLogit
                                   : logit;
}

// The id that would complete the i-th bad word after `num_outputs` outputs; -1: none.
SPRY_HOST_DEVICE inline int32_t ForbiddenByBadWord(const RuleSlot& slot, int32_t num_outputs,
                                                   int32_t i) {
  const int32_t begin = i == 0 ? 0 : slot.bad_word_ends[i - 1];
  const int32_t last = slot.bad_word_ends[i] - 1;
  const int32_t before = last - begin;  // tokens that must have come
  if (before > num_outputs) return -1;
  for (int32_t k = 0; k < before; ++k) {
    const int32_t output = slot.recent[(num_outputs - before + k) % kMaxBadWordLength];
    if (slot.bad_word_tokens[begin + k] != output) return -1;
  }
  return slot.bad_word_tokens[last];
}

// Notes the row's next output, the `index`-th from 0.
SPRY_HOST_DEVICE inline void NoteOutput(const RuleSlot& slot, int32_t index, int32_t token) {
  slot.recent[index % kMaxBadWordLength] = token;
  if (slot.header->penalises == 0) return;
  slot.seen[token / kIdsPerMaskWord] |= 1u << token % kIdsPerMaskWord;
  ++slot.counts[token];
}

// All of it on the host: slot.logits from the row's logits, stop ids before min_outputs included.
// No logit may be a NaN or plus infinity.
void AdjustRow(const RuleSlot& slot, const RowState& row, std::span<const float> logits);

}  // namespace spry
