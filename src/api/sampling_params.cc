#include "api/sampling_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

namespace spry {
namespace {

Status OutOfRange(std::string_view field, const auto& value, const char* range) {
  return InvalidArgument(fmt::format("{} is {}; it must be {}", field, value, range));
}

Status CheckIds(std::string_view field, std::span<const TokenId> ids, int64_t vocab_size) {
  for (const TokenId id : ids) {
    if (id.value() < 0 || id.value() >= vocab_size) {
      return InvalidArgument(fmt::format("{} has {}; ids of this model go from 0 to {}", field,
                                         id.value(), vocab_size - 1));
    }
  }
  return {};
}

std::vector<TokenId> IdsOf(std::span<const LogitBias> biases) {
  std::vector<TokenId> ids;
  for (const LogitBias& entry : biases) ids.push_back(entry.token);
  return ids;
}

Status CheckPenalties(const SamplingParams& p) {
  // As devices see it: a smaller number would be 0 in f32, a larger one infinite.
  const float repetition = static_cast<float>(p.repetition_penalty);
  if (!(repetition >= std::numeric_limits<float>::min() && std::isfinite(repetition))) {
    return OutOfRange("repetition_penalty", p.repetition_penalty, "from 1.2e-38 to 3.4e38");
  }
  if (!(p.presence_penalty >= -2.0 && p.presence_penalty <= 2.0)) {
    return OutOfRange("presence_penalty", p.presence_penalty, "in [-2, 2]");
  }
  if (!(p.frequency_penalty >= -2.0 && p.frequency_penalty <= 2.0)) {
    return OutOfRange("frequency_penalty", p.frequency_penalty, "in [-2, 2]");
  }
  return {};
}

Status CheckBiases(std::span<const LogitBias> biases) {
  if (biases.size() > kMaxLogitBiases) {
    return OutOfRange("the number of logit_bias entries", biases.size(), "at most 1024");
  }
  std::vector<TokenId> ids = IdsOf(biases);
  for (const LogitBias& entry : biases) {
    if (!(entry.bias >= -kMaxLogitBias && entry.bias <= kMaxLogitBias)) {
      return OutOfRange(fmt::format("logit_bias of {}", entry.token.value()), entry.bias,
                        "in [-100, 100]");
    }
  }
  std::ranges::sort(ids);
  const auto twice = std::ranges::adjacent_find(ids);
  if (twice == ids.end()) return {};
  return InvalidArgument(fmt::format("logit_bias has {} twice", twice->value()));
}

Status CheckBadWords(std::span<const std::vector<TokenId>> words) {
  if (words.size() > kMaxBadWords) {
    return OutOfRange("the number of bad_words as token sequences", words.size(), "at most 1024");
  }
  size_t tokens = 0;
  for (const std::vector<TokenId>& word : words) {
    if (word.empty() || word.size() > kMaxBadWordLength) {
      return OutOfRange("the length of one of bad_words", word.size(), "from 1 to 32 tokens");
    }
    tokens += word.size();
  }
  if (tokens <= kMaxBadWordTokens) return {};
  return OutOfRange("the number of tokens of all bad_words", tokens, "at most 4096");
}

}  // namespace

Status CheckRanges(const SamplingParams& p) {
  if (p.n < 1 || p.n > kMaxChoices) return OutOfRange("n", p.n, "from 1 to 128");
  // Written so that NaN fails each test.
  if (!(p.temperature >= 0.0 && std::isfinite(p.temperature))) {
    return OutOfRange("temperature", p.temperature, "0 or more, and finite");
  }
  if (!(p.top_p > 0.0 && p.top_p <= 1.0)) return OutOfRange("top_p", p.top_p, "in (0, 1]");
  if (!(p.min_p >= 0.0 && p.min_p <= 1.0)) return OutOfRange("min_p", p.min_p, "in [0, 1]");
  if (p.top_k < -1) return OutOfRange("top_k", p.top_k, "1 or more, or 0 or -1 to turn it off");
  if (p.max_tokens < (p.prompt_logprobs ? 0 : 1)) {
    return OutOfRange("max_tokens", p.max_tokens, "1 or more, or 0 with prompt_logprobs");
  }
  if (p.min_tokens < 0 || p.min_tokens > p.max_tokens) {
    return OutOfRange("min_tokens", p.min_tokens, "from 0 to max_tokens");
  }
  if (p.logprobs && (*p.logprobs < 0 || *p.logprobs > kMaxLogprobs)) {
    return OutOfRange("logprobs", *p.logprobs, "from 0 to 20");
  }
  if (p.prompt_logprobs && (*p.prompt_logprobs < 0 || *p.prompt_logprobs > kMaxLogprobs)) {
    return OutOfRange("prompt_logprobs", *p.prompt_logprobs, "from 0 to 20");
  }
  if (p.stop_token_ids.size() > kMaxStopTokenIds) {
    return OutOfRange("the number of stop_token_ids", p.stop_token_ids.size(), "at most 32");
  }
  if (p.stop.size() > kMaxStopStrings) {
    return OutOfRange("the number of stop strings", p.stop.size(), "at most 64");
  }
  for (const std::string& stop : p.stop) {
    if (stop.empty() || stop.size() > kMaxStopStringBytes) {
      return OutOfRange("the size of a stop string", stop.size(), "from 1 to 1024 bytes");
    }
  }
  SPRY_RETURN_IF_ERROR(CheckPenalties(p));
  SPRY_RETURN_IF_ERROR(CheckBiases(p.logit_bias));
  if (p.allowed_token_ids && p.allowed_token_ids->empty()) {
    return InvalidArgument("allowed_token_ids is empty; give at least one id, or leave it out");
  }
  return CheckBadWords(p.bad_words);
}

Status Validate(const SamplingParams& p, int64_t vocab_size) {
  SPRY_RETURN_IF_ERROR(CheckRanges(p));
  SPRY_RETURN_IF_ERROR(CheckIds("stop_token_ids", p.stop_token_ids, vocab_size));
  SPRY_RETURN_IF_ERROR(CheckIds("logit_bias", IdsOf(p.logit_bias), vocab_size));
  if (p.allowed_token_ids) {
    SPRY_RETURN_IF_ERROR(CheckIds("allowed_token_ids", *p.allowed_token_ids, vocab_size));
  }
  for (const std::vector<TokenId>& word : p.bad_words) {
    SPRY_RETURN_IF_ERROR(CheckIds("bad_words", word, vocab_size));
  }
  return {};
}

}  // namespace spry
