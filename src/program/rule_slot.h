// A rule slot: what the device keeps for a request with LogitRules (api/logit_rules.h) while it has
// a row. Slots are a pool of limits.max_rule_slots, apart from the rows, so that rows without rules
// cost nothing; a row's RowState names its slot.
//
// Each slot has an image that the host writes when the request joins (counts and all, so that a
// request comes back from a preemption as it left) and the stage op copies into the slot; when only
// the allowed ids changed (a TokenMask), stage copies those. A device that computes in the host's
// memory gives the slot itself as the image, and copies nothing. The host may write an image only
// when no step in flight copies it.
//
//   logits of the row --AdjustLogit (ops/logit_rules.h)--> slot.logits --sample--> token
//   advance: counts[token] += 1, seen <- token, recent <- token
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "api/logit_rules.h"
#include "base/ids.h"

namespace spry {

struct RuleHeader {
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t penalises = 0;  // 0: `seen` and `counts` mean nothing
  int32_t restricts = 0;  // 0: `allowed` means nothing
  int32_t num_biases = 0;
  int32_t num_bad_words = 0;
};

// A view of one slot or image. V: ids of the vocabulary; bit id % 32 of word id / 32 is an id's.
struct RuleSlot {
  RuleHeader* header = nullptr;
  uint32_t* allowed = nullptr;         // [V / 32]
  uint32_t* seen = nullptr;            // [V / 32]: ids in the prompt or the output
  int32_t* counts = nullptr;           // [V]: times in the output
  LogitBias* biases = nullptr;         // [kMaxLogitBiases]
  int32_t* bad_word_ends = nullptr;    // [kMaxBadWords]: where in bad_word_tokens the i-th ends
  int32_t* bad_word_tokens = nullptr;  // [kMaxBadWordTokens]
  int32_t* recent = nullptr;  // [kMaxBadWordLength]: the i-th output is at i % kMaxBadWordLength
  float* logits = nullptr;    // [V]: the row's, adjusted; null in an image of its own
};

inline constexpr int kIdsPerMaskWord = 32;
SPRY_HOST_DEVICE inline int64_t MaskWords(int64_t vocab_size) {
  return (vocab_size + kIdsPerMaskWord - 1) / kIdsPerMaskWord;
}

// Where everything lies in a slot of a given vocabulary; trivially copyable, for kernels.
struct RuleSlotLayout {
  int32_t vocab_size = 0;
  int64_t image_bytes = 0;  // of all but the logits, which come last
  int64_t slot_bytes = 0;
};
RuleSlotLayout MakeRuleSlotLayout(int64_t vocab_size);

// Arrays start where a vector of 16 bytes may, and a cache line.
inline constexpr int64_t kRuleAlignBytes = 64;

// The slot or image at `base`, aligned like its arrays.
SPRY_HOST_DEVICE inline RuleSlot MapRuleSlot(const RuleSlotLayout& layout, std::byte* base) {
  const auto take = [&base](int64_t bytes) {
    std::byte* at = base;
    base += (bytes + kRuleAlignBytes - 1) / kRuleAlignBytes * kRuleAlignBytes;
    return at;
  };
  const int64_t mask_bytes = MaskWords(layout.vocab_size) * static_cast<int64_t>(sizeof(uint32_t));
  const int64_t vocab_bytes = layout.vocab_size * static_cast<int64_t>(sizeof(int32_t));
  RuleSlot slot;
  slot.header = reinterpret_cast<RuleHeader*>(take(sizeof(RuleHeader)));
  slot.allowed = reinterpret_cast<uint32_t*>(take(mask_bytes));
  slot.seen = reinterpret_cast<uint32_t*>(take(mask_bytes));
  slot.counts = reinterpret_cast<int32_t*>(take(vocab_bytes));
  slot.biases = reinterpret_cast<LogitBias*>(take(kMaxLogitBiases * sizeof(LogitBias)));
  slot.bad_word_ends = reinterpret_cast<int32_t*>(take(kMaxBadWords * sizeof(int32_t)));
  slot.bad_word_tokens = reinterpret_cast<int32_t*>(take(kMaxBadWordTokens * sizeof(int32_t)));
  slot.recent = reinterpret_cast<int32_t*>(take(kMaxBadWordLength * sizeof(int32_t)));
  slot.logits = reinterpret_cast<float*>(base);
  return slot;
}

// Fills an image for a request whose prompt and outputs so far are given. `rules` is valid for the
// vocabulary; its mask, where there is one, is asked for what follows the outputs. Entries that the
// header says mean nothing are left as they were.
void WriteRuleImage(const RuleSlotLayout& layout, const LogitRules& rules,
                    std::span<const TokenId> prompt, std::span<const TokenId> outputs,
                    const RuleSlot& image);

// The allowed ids alone: those of the list that the mask allows after `outputs`.
void WriteAllowed(const RuleSlotLayout& layout, const LogitRules& rules,
                  std::span<const TokenId> outputs, const RuleSlot& image);

}  // namespace spry
