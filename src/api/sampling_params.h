// What a request may ask of sampling, in the words of vLLM and OpenAI, and the limits on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/logit_rules.h"
#include "base/ids.h"
#include "base/status.h"

namespace spry {

inline constexpr int kMaxStopTokenIds = 32;  // per request, the model's own end ids included
inline constexpr int kMaxStopStrings = 64;
inline constexpr int kMaxStopStringBytes = 1024;
inline constexpr int kMaxLogprobs = 20;             // alternatives per token
inline constexpr int kMaxChoices = 128;             // per request
inline constexpr double kGreedyTemperature = 1e-5;  // below: greedy, as vLLM

struct SamplingParams {
  int n = 1;                     // answers to the prompt, 1 to kMaxChoices (engine/choices.h)
  double temperature = 1.0;      // >= 0; below kGreedyTemperature the most likely token is taken
  double top_p = 1.0;            // (0, 1]
  double min_p = 0.0;            // [0, 1]
  int top_k = 0;                 // 0 or -1: off
  std::optional<uint64_t> seed;  // absent: drawn when the request is submitted

  double repetition_penalty = 1.0;    // > 0; divides or multiplies ids of the prompt or the output
  double presence_penalty = 0.0;      // [-2, 2]; taken from ids that are in the output
  double frequency_penalty = 0.0;     // [-2, 2]; the same, times how often
  std::vector<LogitBias> logit_bias;  // added; [-100, 100], each id once
  std::optional<std::vector<TokenId>> allowed_token_ids;  // absent: all; not empty
  // Sequences that the output may not complete (text/bad_words.h makes them of words).
  std::vector<std::vector<TokenId>> bad_words;

  // Cut to what max_model_len leaves. 0, with prompt_logprobs alone: the prompt is scored.
  int max_tokens = 16;
  int min_tokens = 0;  // no end or stop id before that many
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  // The text ends before the first of these, or with it (text/stop_strings.h); not looked for in
  // the text of the first min_tokens tokens. The engine knows tokens alone: whoever turns them into
  // text does this, and cancels the request.
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;

  // Log-probabilities of the chosen token and of this many alternatives; absent: none.
  std::optional<int> logprobs;
  // The same of each prompt token but the first, given those before it.
  std::optional<int> prompt_logprobs;
};

// OK, or InvalidArgument naming the field, its value and its range. What no model is needed for:
// all but whether ids are in a vocabulary.
Status CheckRanges(const SamplingParams& params);
// And the ids, which `vocab_size` bounds.
Status Validate(const SamplingParams& params, int64_t vocab_size);

}  // namespace spry
