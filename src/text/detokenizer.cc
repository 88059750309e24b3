#include "text/detokenizer.h"

#include "text/utf8.h"

namespace spry {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

void Detokenizer::Append(TokenId id, std::string& text) {
  if (skip_special_tokens_ && tokenizer_.IsSpecial(id)) return;
  pending_.append(tokenizer_.TokenBytes(id));
  const size_t ready = pending_.size() - TruncatedSuffix(pending_);
  AppendLossy(std::string_view(pending_).substr(0, ready), text);
  pending_.erase(0, ready);
}

void Detokenizer::Finish(std::string& text) {
  AppendLossy(pending_, text);
  pending_.clear();
}

}  // namespace spry
