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
#include "checkpoint/model_config.h"

namespace CLI {
class App;
}

namespace spry {

struct SamplingFields {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> n, top_k, max_tokens, min_tokens, logprobs, prompt_logprobs;
  std::optional<uint64_t> seed;
  std::optional<std::vector<TokenId>> stop_token_ids;
  std::optional<std::vector<std::string>> stop;
  std::optional<bool> ignore_eos, include_stop_str_in_output;

  // Overwrites in `params` what is said here.
  void ApplyTo(SamplingParams& params) const;
};

// Where a request of this model starts from: its generation_config where that speaks.
SamplingParams DefaultSampling(const SamplingDefaults& defaults);

// All fields but the seed, which is a flag of the engine.
void AddSamplingFlags(CLI::App& parser, SamplingFields& fields);

}  // namespace spry
