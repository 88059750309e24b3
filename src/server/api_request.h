// A request for text that has been read, checked and turned into tokens, whichever endpoint it came
// through: one or more prompts, and n choices of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/sampling_params.h"
#include "base/ids.h"

namespace spry {

struct ApiPrompt {
  std::vector<TokenId> ids;
  std::string text;  // as given, while the request is read
  // With ApiRequest::echo: what goes in front of each answer, with JSON's escapes, for there may be
  // many answers and it may be long.
  std::string echo;
  int64_t echo_characters = 0;
  // Tokens at the front of ids that are no part of the echo: a bos that the tokenizer put there.
  int added = 0;
  bool spelled_special = false;  // special tokens of ids are spelled out in the echo
  int max_tokens = 0;
};

struct ApiRequest {
  enum class Kind { kChat, kCompletion };
  Kind kind = Kind::kCompletion;
  std::string model;  // as answers call it
  std::string id;     // the client's own; empty: none
  std::vector<ApiPrompt> prompts;
  int n = 1;                           // choices a prompt; choice i of a seed has seed + i
  SamplingParams sampling;             // but for max_tokens, which each prompt has
  std::optional<int> prompt_logprobs;  // as the answer is to show them
  bool echo = false;

  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool skip_special_tokens = true;
  bool return_token_ids = false;
  bool return_tokens_as_token_ids = false;
  std::string cache_salt;
  int priority = 0;

  std::vector<std::string> ignored;  // names of fields that nobody knows

  int num_choices() const { return static_cast<int>(prompts.size()) * n; }
};

}  // namespace spry
