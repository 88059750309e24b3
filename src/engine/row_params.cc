#include "engine/row_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace spry {

Result<RowParams> MakeRowParams(const SamplingParams& sampling, std::span<const TokenId> eos_tokens,
                                uint64_t drawn_seed) {
  RowParams row;
  const bool greedy = sampling.temperature < kGreedyTemperature;
  row.temperature = greedy ? 0.0f : static_cast<float>(sampling.temperature);
  row.top_p = static_cast<float>(sampling.top_p);
  row.min_p = static_cast<float>(sampling.min_p);
  row.top_k = sampling.top_k > 0 ? sampling.top_k : 0;
  row.seed = sampling.seed.value_or(drawn_seed);
  row.min_outputs = sampling.min_tokens;
  row.max_outputs = sampling.max_tokens;
  row.num_logprobs = sampling.logprobs.value_or(-1);
  row.num_prompt_logprobs = sampling.prompt_logprobs.value_or(-1);

  const auto add = [&row](std::span<const TokenId> ids) {
    for (const TokenId id : ids) {
      if (row.num_stop_ids == kMaxStopTokenIds) return false;
      row.stop_ids[row.num_stop_ids++] = id;
    }
    return true;
  };
  if (!add(sampling.stop_token_ids) || (!sampling.ignore_eos && !add(eos_tokens))) {
    return InvalidArgument(
        fmt::format("stop_token_ids and the model's end ids are more than {}", kMaxStopTokenIds));
  }
  return row;
}

std::shared_ptr<const LogitRules> MakeLogitRules(const SamplingParams& sampling,
                                                 std::shared_ptr<TokenMask> mask) {
  LogitRules rules{.repetition_penalty = static_cast<float>(sampling.repetition_penalty),
                   .presence_penalty = static_cast<float>(sampling.presence_penalty),
                   .frequency_penalty = static_cast<float>(sampling.frequency_penalty),
                   .biases = sampling.logit_bias,
                   .allowed = sampling.allowed_token_ids.value_or(std::vector<TokenId>()),
                   .bad_words = sampling.bad_words,
                   .mask = std::move(mask)};
  std::ranges::sort(rules.allowed);
  rules.allowed.erase(std::unique(rules.allowed.begin(), rules.allowed.end()), rules.allowed.end());
  return rules.any() ? std::make_shared<const LogitRules>(std::move(rules)) : nullptr;
}

}  // namespace spry
