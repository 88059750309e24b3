#include "api/sampling_params.h"

#include <fmt/format.h>

#include <cmath>

namespace spry {
namespace {

Status OutOfRange(const char* field, const auto& value, const char* range) {
  return InvalidArgument(fmt::format("{} is {}; it must be {}", field, value, range));
}

}  // namespace

Status Validate(const SamplingParams& p, int64_t vocab_size) {
  if (p.n < 1 || p.n > kMaxChoices) return OutOfRange("n", p.n, "from 1 to 128");
  // Written so that NaN fails each test.
  if (!(p.temperature >= 0.0 && std::isfinite(p.temperature))) {
    return OutOfRange("temperature", p.temperature, "0 or more");
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
  for (const TokenId id : p.stop_token_ids) {
    if (id.value() < 0 || id.value() >= vocab_size) {
      return InvalidArgument(fmt::format("stop_token_ids has {}; ids of this model go from 0 to {}",
                                         id.value(), vocab_size - 1));
    }
  }
  return {};
}

}  // namespace spry
