// What one place (the flags, or one line of a .jsonl file) says about sampling, and what it leaves
// open. Places are laid over one another: the model's generation_config, then the flags, then the
// line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/sampling_params.h"
#include "base/ids.h"
#include "base/status.h"
#include "checkpoint/model_config.h"
#include "text/tokenizer.h"

namespace CLI {
class App;
}

namespace spry {

struct SamplingFields {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int> n, top_k, max_tokens, min_tokens, logprobs, prompt_logprobs;
  std::optional<uint64_t> seed;
  std::optional<std::vector<TokenId>> stop_token_ids, allowed_token_ids;
  std::optional<std::vector<LogitBias>> logit_bias;
  std::optional<std::vector<std::string>> stop, bad_words;
  std::optional<bool> ignore_eos, include_stop_str_in_output;

  // Overwrites in `params` what is said here, bad_words aside.
  void Overlay(SamplingParams& params) const;
  // And bad_words. InvalidArgument for words that `tokenizer` (null: the
  // model has none) cannot spell.
  Status ApplyTo(SamplingParams& params, const Tokenizer* tokenizer) const;
};

// Where a request of this model starts from: its generation_config where that speaks.
SamplingParams DefaultSampling(const SamplingDefaults& defaults);
// The same for an answer in a chat, which goes on to its end or to what the model's length leaves.
SamplingParams DefaultChatSampling(const SamplingDefaults& defaults);

// How tokens are chosen and where the output ends. Not the seed, which AddModelFlags has, nor what
// only some commands can show: several answers, log-probabilities.
void AddSamplingFlags(CLI::App& parser, SamplingFields& fields);

}  // namespace spry
