#include "app/request_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
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
      stops_(options_.sampling.stop, options_.sampling.include_stop_str_in_output
                                         ? StopScanner::Include::kYes
                                         : StopScanner::Include::kNo) {
  constexpr bool kSkipSpecialTokens = true;
  if (options_.tokenizer != nullptr) {
    detokenizer_.emplace(*options_.tokenizer, kSkipSpecialTokens);
  }
}

// Appends the event's text to text_, up to a stop string.
void RequestOutput::Spell(const TokenEvent& event) {
  spelled_.clear();
  if (event.has_token && finish_ != FinishReason::kStop) {
    detokenizer_->Append(event.token, spelled_);
  }
  if (finished()) detokenizer_->Finish(spelled_);
  if (static_cast<int>(token_ids_.size()) <= options_.sampling.min_tokens) {
    stops_.Pass(spelled_, text_);
  } else {
    stops_.Append(spelled_, text_);
  }
  if (stops_.found()) {
    finish_ = FinishReason::kStop;
  } else if (finished()) {
    stops_.Finish(text_);
  }
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
    }
    if (options_.sampling.logprobs) {
      logprobs_.push_back(*event.logprobs);
    }
  }
  prompt_logprobs_.insert(prompt_logprobs_.end(), event.prompt_logprobs.begin(),
                          event.prompt_logprobs.end());
  if (detokenizer_) Spell(event);
  return std::string_view(text_).substr(before);
}

std::string RequestOutput::ToJson() const {
  json::array ids;
  for (const TokenId id : token_ids_) ids.emplace_back(id.value());
  json::object object = {{"index", options_.index},
                         {"choice", options_.choice},
                         {"prompt_tokens", options_.prompt_tokens},
                         {"cached_tokens", cached_tokens_},
                         {"token_ids", std::move(ids)},
                         {"text", nullptr},
                         {"finish_reason", Name(finish_)},
                         {"stop_reason", nullptr}};
  if (detokenizer_) object["text"] = text_;
  if (stops_.found()) {
    object["stop_reason"] = options_.sampling.stop[*stops_.found()];
  } else if (finish_ == FinishReason::kStop &&
             std::ranges::find(options_.sampling.stop_token_ids, token_ids_.back()) !=
                 options_.sampling.stop_token_ids.end()) {
    object["stop_reason"] = token_ids_.back().value();
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
