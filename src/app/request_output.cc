#include "app/request_output.h"

#include <fmt/format.h>

#include <boost/json.hpp>

namespace spry {
namespace {

namespace json = boost::json;

const char* Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: break;
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAborted: return "abort";
    case FinishReason::kError: return "error";
  }
  return "";
}

json::object ToObject(const TokenLogprob& entry) {
  return {{"token_id", entry.token.value()}, {"logprob", entry.logprob}};
}

}  // namespace

RequestOutput::RequestOutput(const Options& options) : options_(options) {
  constexpr bool kSkipSpecialTokens = true;
  if (options.tokenizer != nullptr) detokenizer_.emplace(*options.tokenizer, kSkipSpecialTokens);
}

std::string_view RequestOutput::Take(const TokenEvent& event) {
  const size_t before = text_.size();
  finish_ = event.finish;
  cached_tokens_ = event.num_cached_tokens;
  if (event.has_token) {
    token_ids_.push_back(event.token);
    if (!detokenizer_) {
      fmt::format_to(std::back_inserter(text_), "{}{}", before == 0 ? "" : " ",
                     event.token.value());
    } else if (finish_ != FinishReason::kStop) {
      detokenizer_->Append(event.token, text_);
    }
    if (options_.logprobs) {
      const RowResult& result = *event.result;
      logprobs_.push_back({.chosen = result.chosen,
                           .rank = result.rank,
                           .top = {result.top, result.top + result.num_top}});
    }
  }
  if (finished() && detokenizer_) detokenizer_->Finish(text_);
  return std::string_view(text_).substr(before);
}

std::string RequestOutput::ToJson() const {
  json::array ids;
  for (const TokenId id : token_ids_) ids.emplace_back(id.value());
  json::object object = {{"index", options_.index},
                         {"prompt_tokens", options_.prompt_tokens},
                         {"cached_tokens", cached_tokens_},
                         {"token_ids", std::move(ids)},
                         {"text", nullptr},
                         {"finish_reason", Name(finish_)}};
  if (detokenizer_) object["text"] = text_;
  if (options_.logprobs) {
    json::array entries;
    for (const Logprobs& entry : logprobs_) {
      json::object token = ToObject(entry.chosen);
      token["rank"] = entry.rank;
      json::array& top = token["top_logprobs"].emplace_array();
      for (const TokenLogprob& other : entry.top) top.push_back(ToObject(other));
      entries.push_back(std::move(token));
    }
    object["logprobs"] = std::move(entries);
  }
  return json::serialize(object);
}

}  // namespace spry
