// Reads tests/golden/models.
#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "checkpoint/safetensors.h"

namespace spry {

inline std::filesystem::path GoldenFolder(const std::string& model) {
  return std::filesystem::path(SPRY_SOURCE_DIR) / "tests/golden/models" / model;
}

// The first `length` tokens of a sequence as prompt, then `outputs` tokens to make.
struct GoldenPrompt {
  int sequence = 0;
  int length = 0;
  int outputs = 0;
};

struct GoldenModel {
  int length = 0;          // S
  int prompt_length = 24;  // random ids; the rest is the greedy continuation
  int vocab_size = 0;
  float logit_range = 0.0f;
  std::vector<float> tokens;    // [2, S]
  std::vector<float> logits;    // [2, S, V]
  std::vector<float> logits16;  // [2, S, V]

  TokenId Token(int sequence, int position) const {
    return TokenId(static_cast<int32_t>(tokens[sequence * length + position]));
  }
  std::vector<TokenId> Prefix(const GoldenPrompt& prompt) const {
    std::vector<TokenId> ids;
    for (int i = 0; i < prompt.length; ++i) ids.push_back(Token(prompt.sequence, i));
    return ids;
  }
  int64_t LogitsOffset(int sequence, int position) const {
    return (int64_t{sequence} * length + position) * vocab_size;
  }
};

GoldenModel ReadGolden(const std::string& model);

}  // namespace spry
