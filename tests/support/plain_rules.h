// Rules on logits as a plain reading of vLLM V1's order, over whole vectors and with maps: what the
// devices' row functions are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "api/logit_rules.h"
#include "api/row.h"

namespace spry::testing {

// A mask that allows the ids whose (id + number of outputs) is not a multiple of 3.
class EveryThirdForbidden final : public TokenMask {
 public:
  explicit EveryThirdForbidden(int vocab_size) : vocab_size_(vocab_size) {}
  static bool Allows(int id, int num_outputs) { return (id + num_outputs) % 3 != 0; }
  void Fill(std::span<const TokenId> outputs, std::span<uint32_t> allowed) override {
    std::ranges::fill(allowed, 0);
    for (int id = 0; id < vocab_size_; ++id) {
      const bool allows = Allows(id, static_cast<int>(outputs.size()));
      allowed[id / 32] |= static_cast<uint32_t>(allows) << id % 32;
    }
  }

 private:
  int vocab_size_;
};

struct RuledRequest {
  std::vector<TokenId> prompt;
  std::vector<TokenId> outputs;  // so far
  LogitRules rules;
  RowParams params;
};

inline std::vector<float> PlainAdjust(std::vector<float> logits, const RuledRequest& request) {
  const LogitRules& rules = request.rules;
  const auto forbid = [&logits](int id) { logits[id] = -INFINITY; };
  const int vocab_size = static_cast<int>(logits.size());
  const std::set<TokenId> allowed(rules.allowed.begin(), rules.allowed.end());
  const int num_outputs = static_cast<int>(request.outputs.size());
  for (int id = 0; id < vocab_size; ++id) {
    if (!allowed.empty() && !allowed.contains(TokenId(id))) forbid(id);
    if (rules.mask != nullptr && !EveryThirdForbidden::Allows(id, num_outputs)) forbid(id);
  }
  for (const std::vector<TokenId>& word : rules.bad_words) {
    const size_t before = word.size() - 1;
    if (before > request.outputs.size()) continue;
    if (std::equal(word.begin(), word.end() - 1, request.outputs.end() - before)) {
      forbid(word.back().value());
    }
  }
  if (num_outputs < request.params.min_outputs) {
    for (int i = 0; i < request.params.num_stop_ids; ++i) {
      forbid(request.params.stop_ids[i].value());
    }
  }
  for (const LogitBias& entry : rules.biases) logits[entry.token.value()] += entry.bias;
  std::map<TokenId, int> counts;
  for (const TokenId id : request.outputs) ++counts[id];
  std::set<TokenId> seen(request.prompt.begin(), request.prompt.end());
  seen.insert(request.outputs.begin(), request.outputs.end());
  for (const TokenId id : seen) {
    float& logit = logits[id.value()];
    logit = logit > 0 ? logit / rules.repetition_penalty : logit * rules.repetition_penalty;
  }
  for (const auto& [id, count] : counts) {
    logits[id.value()] -= rules.frequency_penalty * static_cast<float>(count);
    logits[id.value()] -= rules.presence_penalty;
  }
  return logits;
}

}  // namespace spry::testing
