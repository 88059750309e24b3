#include "program/rule_slot.h"

#include <algorithm>

#include "base/check.h"

namespace spry {
namespace {

void SetBit(uint32_t* words, TokenId id) {
  words[id.value() / kIdsPerMaskWord] |= 1u << id.value() % kIdsPerMaskWord;
}

void WriteCounts(const RuleSlotLayout& layout, std::span<const TokenId> prompt,
                 std::span<const TokenId> outputs, const RuleSlot& image) {
  std::fill_n(image.seen, MaskWords(layout.vocab_size), 0);
  std::fill_n(image.counts, layout.vocab_size, 0);
  for (const TokenId id : prompt) SetBit(image.seen, id);
  for (const TokenId id : outputs) {
    SetBit(image.seen, id);
    ++image.counts[id.value()];
  }
}

void WriteBadWords(const LogitRules& rules, std::span<const TokenId> outputs,
                   const RuleSlot& image) {
  CHECK(rules.bad_words.size() <= kMaxBadWords);
  int32_t end = 0;
  for (size_t i = 0; i < rules.bad_words.size(); ++i) {
    for (const TokenId id : rules.bad_words[i]) {
      CHECK(end < kMaxBadWordTokens);
      image.bad_word_tokens[end++] = id.value();
    }
    image.bad_word_ends[i] = end;
  }
  const size_t first = outputs.size() - std::min<size_t>(outputs.size(), kMaxBadWordLength);
  for (size_t i = first; i < outputs.size(); ++i) {
    image.recent[i % kMaxBadWordLength] = outputs[i].value();
  }
}

}  // namespace

RuleSlotLayout MakeRuleSlotLayout(int64_t vocab_size) {
  RuleSlotLayout layout{.vocab_size = static_cast<int32_t>(vocab_size)};
  auto* const base = reinterpret_cast<std::byte*>(kRuleAlignBytes);  // any address will do
  layout.image_bytes = reinterpret_cast<std::byte*>(MapRuleSlot(layout, base).logits) - base;
  const int64_t bytes = layout.image_bytes + vocab_size * static_cast<int64_t>(sizeof(float));
  layout.slot_bytes = (bytes + kRuleAlignBytes - 1) / kRuleAlignBytes * kRuleAlignBytes;
  return layout;
}

void WriteAllowed(const RuleSlotLayout& layout, const LogitRules& rules,
                  std::span<const TokenId> outputs, const RuleSlot& image) {
  const std::span words(image.allowed, MaskWords(layout.vocab_size));
  if (rules.mask != nullptr) {
    rules.mask->Fill(outputs, words);
  } else {
    std::ranges::fill(words, ~0u);
  }
  if (rules.allowed.empty()) return;
  auto id = rules.allowed.begin();
  for (size_t w = 0; w < words.size(); ++w) {
    uint32_t listed = 0;
    for (; id != rules.allowed.end() && id->value() / kIdsPerMaskWord == static_cast<int>(w);
         ++id) {
      listed |= 1u << id->value() % kIdsPerMaskWord;
    }
    words[w] &= listed;
  }
}

void WriteRuleImage(const RuleSlotLayout& layout, const LogitRules& rules,
                    std::span<const TokenId> prompt, std::span<const TokenId> outputs,
                    const RuleSlot& image) {
  CHECK(rules.biases.size() <= kMaxLogitBiases);
  *image.header = {.repetition_penalty = rules.repetition_penalty,
                   .presence_penalty = rules.presence_penalty,
                   .frequency_penalty = rules.frequency_penalty,
                   .penalises = rules.penalises(),
                   .restricts = !rules.allowed.empty() || rules.mask != nullptr,
                   .num_biases = static_cast<int32_t>(rules.biases.size()),
                   .num_bad_words = static_cast<int32_t>(rules.bad_words.size())};
  if (image.header->restricts != 0) WriteAllowed(layout, rules, outputs, image);
  if (image.header->penalises != 0) WriteCounts(layout, prompt, outputs, image);
  std::ranges::copy(rules.biases, image.biases);
  if (!rules.bad_words.empty()) WriteBadWords(rules, outputs, image);
}

}  // namespace spry
