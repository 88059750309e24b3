#include "app/sampling_fields.h"

#include <charconv>
#include <limits>
#include <string_view>

#include "app/flag_checks.h"
#include "text/bad_words.h"

namespace spry {
namespace {

template <typename To, typename From>
void Overwrite(To& to, const std::optional<From>& from) {
  if (from) to = *from;
}

// "11:-5" or "11:0.5".
std::optional<LogitBias> ParseLogitBias(std::string_view text) {
  const char* const end = text.data() + text.size();
  int32_t id = 0;
  const auto [colon, id_error] = std::from_chars(text.data(), end, id);
  if (id_error != std::errc() || id < 0 || colon == end || *colon != ':') return std::nullopt;
  float bias = 0.0f;
  const auto [stop, bias_error] = std::from_chars(colon + 1, end, bias);
  if (bias_error != std::errc() || stop != end) return std::nullopt;
  return LogitBias{TokenId(id), bias};
}

// Penalties, biases, and what may be chosen at all.
void AddRuleFlags(CLI::App& parser, SamplingFields& fields, const char* group) {
  parser
      .add_option("--repetition-penalty", fields.repetition_penalty,
                  "Above 1: against ids of the prompt or the output [1]")
      ->check(ForSampling<double>(&SamplingParams::repetition_penalty))
      ->group(group);
  parser
      .add_option("--presence-penalty", fields.presence_penalty,
                  "Taken from the logits of ids that are in the output [0]")
      ->check(ForSampling<double>(&SamplingParams::presence_penalty))
      ->group(group);
  parser
      .add_option("--frequency-penalty", fields.frequency_penalty,
                  "The same, times how often they are there [0]")
      ->check(ForSampling<double>(&SamplingParams::frequency_penalty))
      ->group(group);
  const auto check_bias = [](const std::string& text) {
    const std::optional<LogitBias> bias = ParseLogitBias(text);
    if (bias) return CheckRanges({.logit_bias = {*bias}}).message();
    return fmt::format("'{}' must be a token id, a colon and a number", text);
  };
  const auto set_biases = [&fields](const std::vector<std::string>& texts) {
    fields.logit_bias.emplace();
    for (const std::string& text : texts) fields.logit_bias->push_back(*ParseLogitBias(text));
  };
  parser
      .add_option_function<std::vector<std::string>>("--logit-bias", set_biases,
                                                     "Added to a token's logit; several by commas")
      ->check(CLI::Validator(check_bias, ""))
      ->type_name("ID:VALUE")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  const auto set_allowed = [&fields](const std::vector<int>& ids) {
    fields.allowed_token_ids.emplace(ids.begin(), ids.end());
  };
  parser
      .add_option_function<std::vector<int>>("--allowed-token-ids", set_allowed,
                                             "The only ids that may be chosen")
      ->check(AtLeast(0))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  parser
      .add_option("--bad-words", fields.bad_words,
                  "Text that the output may not contain; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(group);
}

}  // namespace

void SamplingFields::Overlay(SamplingParams& params) const {
  Overwrite(params.n, n);
  Overwrite(params.temperature, temperature);
  Overwrite(params.top_p, top_p);
  Overwrite(params.min_p, min_p);
  Overwrite(params.top_k, top_k);
  Overwrite(params.repetition_penalty, repetition_penalty);
  Overwrite(params.presence_penalty, presence_penalty);
  Overwrite(params.frequency_penalty, frequency_penalty);
  Overwrite(params.logit_bias, logit_bias);
  Overwrite(params.allowed_token_ids, allowed_token_ids);
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

Status SamplingFields::ApplyTo(SamplingParams& params, const Tokenizer* tokenizer) const {
  Overlay(params);
  if (!bad_words) return {};
  params.bad_words.clear();
  if (bad_words->empty()) return {};
  if (tokenizer == nullptr) {
    return InvalidArgument("bad_words needs the text of tokens, and the model has no tokenizer");
  }
  SPRY_ASSIGN_OR_RETURN(params.bad_words, EncodeBadWords(*tokenizer, *bad_words));
  return {};
}

SamplingParams DefaultSampling(const SamplingDefaults& defaults) {
  SamplingParams params;
  Overwrite(params.temperature, defaults.temperature);
  Overwrite(params.top_p, defaults.top_p);
  Overwrite(params.min_p, defaults.min_p);
  Overwrite(params.repetition_penalty, defaults.repetition_penalty);
  Overwrite(params.top_k, defaults.top_k);
  return params;
}

SamplingParams DefaultChatSampling(const SamplingDefaults& defaults) {
  SamplingParams params = DefaultSampling(defaults);
  params.max_tokens = std::numeric_limits<int>::max();
  return params;
}

void AddSamplingFlags(CLI::App& parser, SamplingFields& fields) {
  const char* group = "Sampling";
  parser
      .add_option(
          "--max-tokens", fields.max_tokens,
          "Most tokens to generate, cut to what the model's length leaves [16; for a chat all "
          "of that]")
      ->check(ForSampling<int>(&SamplingParams::max_tokens))
      ->group(group);
  parser.add_option("--min-tokens", fields.min_tokens, "No end or stop id before that many [0]")
      ->check(ForSampling<int>(&SamplingParams::min_tokens))
      ->group(group);
  parser.add_option("--temperature", fields.temperature, "0: the most likely token [1]")
      ->check(ForSampling<double>(&SamplingParams::temperature))
      ->group(group);
  parser.add_option("--top-p", fields.top_p, "Keep the likeliest tokens of this total [1]")
      ->check(ForSampling<double>(&SamplingParams::top_p))
      ->group(group);
  parser.add_option("--top-k", fields.top_k, "Keep that many tokens; 0 or -1: all [0]")
      ->check(ForSampling<int>(&SamplingParams::top_k))
      ->group(group);
  parser.add_option("--min-p", fields.min_p, "Drop tokens below this share of the likeliest [0]")
      ->check(ForSampling<double>(&SamplingParams::min_p))
      ->group(group);
  AddRuleFlags(parser, fields, group);
  const auto set_stop_ids = [&fields](const std::vector<int>& ids) {
    fields.stop_token_ids.emplace();
    for (const int id : ids) fields.stop_token_ids->emplace_back(id);
  };
  parser
      .add_option_function<std::vector<int>>("--stop-token-ids", set_stop_ids,
                                             "Ids that end generation, beside the model's own")
      ->check(AtLeast(0))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(group);
  parser.add_option("--stop", fields.stop, "Text that ends the output before it; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group(group);
  parser
      .add_flag("--include-stop-str-in-output", fields.include_stop_str_in_output,
                "End the output after a stop string")
      ->group(group);
  parser.add_flag("--ignore-eos", fields.ignore_eos, "Go on past the model's end ids")
      ->group(group);
}

}  // namespace spry
