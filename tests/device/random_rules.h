// Random rules of a request, to compare devices on.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "tests/device/op_harness.h"
#include "tests/support/plain_rules.h"

namespace spry::testing {

inline std::vector<TokenId> RandomIds(Random& random, int64_t count, int vocab_size) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(TokenId(static_cast<int32_t>(random.Below(vocab_size))));
  }
  return ids;
}

// Each kind of rule is there half the time; few ids, so that rules meet.
inline RuledRequest RandomRuled(Random& random, int vocab_size) {
  RuledRequest request;
  const auto chance = [&random](double p) { return random.Uniform() < p; };
  request.prompt = RandomIds(random, random.Below(40), vocab_size);
  request.outputs = RandomIds(random, random.Below(60), std::min(vocab_size, 23));
  LogitRules& rules = request.rules;
  if (chance(0.5)) rules.repetition_penalty = random.Between(0.3f, 3.0f);
  if (chance(0.5)) rules.presence_penalty = random.Between(-2.0f, 2.0f);
  if (chance(0.5)) rules.frequency_penalty = random.Between(-2.0f, 2.0f);
  if (chance(0.5)) {
    std::set<TokenId> ids;
    for (const TokenId id : RandomIds(random, random.Below(60), vocab_size)) ids.insert(id);
    for (const TokenId id : ids) rules.biases.push_back({id, random.Between(-100.0f, 100.0f)});
  }
  if (chance(0.3)) {
    const auto ids = RandomIds(random, 1 + random.Below(vocab_size), vocab_size);
    const std::set<TokenId> sorted(ids.begin(), ids.end());
    rules.allowed.assign(sorted.begin(), sorted.end());
  }
  if (chance(0.3)) rules.mask = std::make_shared<EveryThirdForbidden>(vocab_size);
  for (int64_t i = chance(0.5) ? random.Below(50) : 0; i > 0; --i) {
    // Half of them begin as the output ends.
    const int64_t most = std::min<int64_t>(request.outputs.size(), kMaxBadWordLength - 1);
    std::vector<TokenId> word(request.outputs.end() - random.Below(most + 1),
                              request.outputs.end());
    if (chance(0.5)) word = RandomIds(random, random.Below(4), vocab_size);
    word.push_back(RandomIds(random, 1, vocab_size)[0]);
    rules.bad_words.push_back(word);
  }
  if (chance(0.3)) {
    request.params.min_outputs = 30;
    for (const TokenId id : RandomIds(random, 5, vocab_size)) {
      request.params.stop_ids[request.params.num_stop_ids++] = id;
    }
  }
  return request;
}

}  // namespace spry::testing
