// What a request may do to the logits before a token is chosen, beyond what fits in a row
// (api/row.h): penalties, biases, and which tokens it may choose at all. Few requests have any;
// those that do hold one of the device's rule slots while they run (program/rule_slot.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"

namespace spry {

inline constexpr int kMaxLogitBiases = 1024;    // per request
inline constexpr double kMaxLogitBias = 100;    // and at least its negative, as OpenAI
inline constexpr int kMaxBadWords = 1024;       // sequences per request
inline constexpr int kMaxBadWordLength = 32;    // tokens of one
inline constexpr int kMaxBadWordTokens = 4096;  // of all of a request
// What penalties and biases make of a finite logit stays within, so that no temperature overflows.
inline constexpr float kMaxRuledLogit = 1e30f;

struct LogitBias {
  TokenId token;
  float bias = 0.0f;
  bool operator==(const LogitBias&) const = default;
};

// Says before each token which ids may follow, for instance by a grammar. Called on the engine's
// thread once the outputs so far are all known, so its request never runs ahead.
class TokenMask {
 public:
  virtual ~TokenMask() = default;
  // Sets bit id % 32 of allowed[id / 32] for every id that may follow `outputs`, and clears the
  // others. `allowed` has room for the whole vocabulary and unknown contents.
  virtual void Fill(std::span<const TokenId> outputs, std::span<uint32_t> allowed) = 0;
};

struct LogitRules {
  float repetition_penalty = 1.0f;              // of ids in the prompt or the output
  float presence_penalty = 0.0f;                // of ids in the output
  float frequency_penalty = 0.0f;               // times how often the id is in the output
  std::vector<LogitBias> biases;                // each id once
  std::vector<TokenId> allowed;                 // rising, each once; empty: all
  std::vector<std::vector<TokenId>> bad_words;  // sequences that the output may not complete
  std::shared_ptr<TokenMask> mask;              // null: none

  bool penalises() const {
    return repetition_penalty != 1.0f || presence_penalty != 0.0f || frequency_penalty != 0.0f;
  }
  bool any() const {
    return penalises() || !biases.empty() || !allowed.empty() || !bad_words.empty() || mask;
  }
};

}  // namespace spry
