#include "engine/choice_text.h"

#include <algorithm>
#include <utility>

namespace spry {

ChoiceTextOptions MakeChoiceTextOptions(const Tokenizer* tokenizer,
                                        const SamplingParams& sampling) {
  return {.tokenizer = tokenizer,
          .stop = sampling.stop,
          .include_stop_str_in_output = sampling.include_stop_str_in_output,
          .min_tokens = sampling.min_tokens,
          .stop_token_ids = sampling.stop_token_ids};
}

ChoiceText::ChoiceText(ChoiceTextOptions options)
    : options_(std::move(options)),
      stops_(options_.stop, options_.include_stop_str_in_output ? StopScanner::Include::kYes
                                                                : StopScanner::Include::kNo) {
  if (options_.tokenizer != nullptr) {
    detokenizer_.emplace(*options_.tokenizer, options_.skip_special_tokens);
  }
}

// Appends the token's text to text_, up to a stop string.
void ChoiceText::Spell(std::optional<TokenId> token) {
  spelled_.clear();
  if (token && finish_ != FinishReason::kStop) detokenizer_->Append(*token, spelled_);
  if (finished()) detokenizer_->Finish(spelled_);
  if (static_cast<int>(token_ids_.size()) <= options_.min_tokens) {
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

std::string_view ChoiceText::Take(std::optional<TokenId> token, FinishReason finish) {
  CHECK(!finished());
  const size_t before = text_.size();
  finish_ = finish;
  if (token) token_ids_.push_back(*token);
  if (detokenizer_) Spell(token);
  return std::string_view(text_).substr(before);
}

const std::string* ChoiceText::stop_string() const {
  return stops_.found() ? &options_.stop[*stops_.found()] : nullptr;
}

std::optional<TokenId> ChoiceText::stop_token() const {
  if (finish_ != FinishReason::kStop || stops_.found() || token_ids_.empty()) return {};
  const bool asked = std::ranges::find(options_.stop_token_ids, token_ids_.back()) !=
                     options_.stop_token_ids.end();
  return asked ? std::optional(token_ids_.back()) : std::nullopt;
}

}  // namespace spry
