#include "app/sampling_fields.h"

#include "app/flag_checks.h"

namespace spry {
namespace {

template <typename To, typename From>
void Overwrite(To& to, const std::optional<From>& from) {
  if (from) to = *from;
}

}  // namespace

void SamplingFields::ApplyTo(SamplingParams& params) const {
  Overwrite(params.n, n);
  Overwrite(params.temperature, temperature);
  Overwrite(params.top_p, top_p);
  Overwrite(params.min_p, min_p);
  Overwrite(params.top_k, top_k);
  Overwrite(params.max_tokens, max_tokens);
  Overwrite(params.min_tokens, min_tokens);
  Overwrite(params.logprobs, logprobs);
  Overwrite(params.prompt_logprobs, prompt_logprobs);
  Overwrite(params.seed, seed);
  Overwrite(params.stop_token_ids, stop_token_ids);
  Overwrite(params.ignore_eos, ignore_eos);
  Overwrite(params.stop, stop);
  Overwrite(params.include_stop_str_in_output, include_stop_str_in_output);
}

SamplingParams DefaultSampling(const SamplingDefaults& defaults) {
  SamplingParams params;
  Overwrite(params.temperature, defaults.temperature);
  Overwrite(params.top_p, defaults.top_p);
  Overwrite(params.min_p, defaults.min_p);
  Overwrite(params.top_k, defaults.top_k);
  return params;
}

void AddSamplingFlags(CLI::App& parser, SamplingFields& fields) {
  const char* group = "Sampling";
  parser.add_option("-n,--n", fields.n, "Answers to each prompt, up to 128 [1]")->group(group);
  parser.add_option("--max-tokens", fields.max_tokens, "Most tokens to generate [16]")
      ->group(group);
  parser.add_option("--min-tokens", fields.min_tokens, "No end or stop id before that many [0]")
      ->group(group);
  parser.add_option("--temperature", fields.temperature, "0: the most likely token [1]")
      ->group(group);
  parser.add_option("--top-p", fields.top_p, "Keep the likeliest tokens of this total [1]")
      ->group(group);
  parser.add_option("--top-k", fields.top_k, "Keep that many tokens; 0 or -1: all [0]")
      ->group(group);
  parser.add_option("--min-p", fields.min_p, "Drop tokens below this share of the likeliest [0]")
      ->group(group);
  const auto set_stop_ids = [&fields](const std::vector<int>& ids) {
    fields.stop_token_ids.emplace();
    for (const int id : ids) fields.stop_token_ids->emplace_back(id);
  };
  parser
      .add_option_function<std::vector<int>>("--stop-token-ids", set_stop_ids,
                                             "Ids that end generation, beside the model's own")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  parser.add_option("--stop", fields.stop, "Text that ends the output before it; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(group);
  const auto include_stop = [&fields](int64_t) { fields.include_stop_str_in_output = true; };
  parser
      .add_flag_function("--include-stop-str-in-output", include_stop,
                         "End the output after a stop string")
      ->group(group);
  const auto set_ignore_eos = [&fields](int64_t) { fields.ignore_eos = true; };
  parser.add_flag_function("--ignore-eos", set_ignore_eos, "Go on past the model's end ids")
      ->group(group);
  parser
      .add_option("--logprobs", fields.logprobs,
                  "Report the log-probabilities of the token and of that many others (--json)")
      ->group(group);
  parser
      .add_option("--prompt-logprobs", fields.prompt_logprobs,
                  "The same of each token of the prompt; --max-tokens 0 scores it alone")
      ->group(group);
}

}  // namespace spry
