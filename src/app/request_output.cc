#include "app/request_output.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <iterator>
#include <optional>
#include <utility>

namespace spry {
namespace {

namespace json = boost::json;

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: break;
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kError: return "error";
  }
  return "";
}

json::object ToObject(const TokenLogprob& entry) {
  return {{"token_id", entry.token.value()}, {"logprob", entry.logprob}};
}

json::object ToObject(const TokenLogprobs& entry) {
  json::object token = ToObject(entry.chosen);
  token["rank"] = entry.rank;
  json::array& top = token["top_logprobs"].emplace_array();
  for (int32_t i = 0; i < entry.num_top; ++i) top.push_back(ToObject(entry.top[i]));
  return token;
}

}  // namespace

RequestOutput::RequestOutput(Options options)
    : options_(std::move(options)),
      choice_(MakeChoiceTextOptions(options_.tokenizer, options_.sampling)) {}

std::string_view RequestOutput::Take(const TokenEvent& event) {
  const size_t before = text().size();
  choice_.Take(event.has_token ? std::optional(event.token) : std::nullopt, event.finish);
  cached_tokens_ = event.num_cached_tokens;
  if (event.has_token) {
    if (!has_text()) {
      fmt::format_to(std::back_inserter(ids_), "{}{}", before == 0 ? "" : " ", event.token.value());
    }
    if (options_.sampling.logprobs) logprobs_.push_back(*event.logprobs);
  }
  prompt_logprobs_.insert(prompt_logprobs_.end(), event.prompt_logprobs.begin(),
                          event.prompt_logprobs.end());
  return std::string_view(text()).substr(before);
}

std::string RequestOutput::ToJson() const {
  json::array ids;
  for (const TokenId id : choice_.token_ids()) ids.emplace_back(id.value());
  json::object object = {{"index", options_.index},
                         {"choice", options_.choice},
                         {"prompt_tokens", options_.prompt_tokens},
                         {"cached_tokens", cached_tokens_},
                         {"token_ids", std::move(ids)},
                         {"text", nullptr},
                         {"finish_reason", Name(finish())},
                         {"stop_reason", nullptr}};
  if (has_text()) object["text"] = text();
  if (const std::string* stop = choice_.stop_string()) object["stop_reason"] = *stop;
  if (const std::optional<TokenId> stop = choice_.stop_token()) {
    object["stop_reason"] = stop->value();
  }
  if (options_.sampling.logprobs) {
    json::array entries;
    for (const TokenLogprobs& entry : logprobs_) entries.push_back(ToObject(entry));
    object["logprobs"] = std::move(entries);
  }
  if (options_.sampling.prompt_logprobs) {
    json::array entries = {nullptr};  // nothing comes before the first token
    for (const TokenLogprobs& entry : prompt_logprobs_) entries.push_back(ToObject(entry));
    object["prompt_logprobs"] = std::move(entries);
  }
  return json::serialize(object);
}

}  // namespace spry
