#include "text/detokenizer.h"

#include "text/token_texts.h"
#include "text/utf8.h"

namespace spry {

using Start = VocabSource::Decoding::Start;

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), texts_(tokenizer.texts()), skip_special_tokens_(skip_special_tokens) {}

void Detokenizer::Append(TokenId id, std::string& text) {
  if (skip_special_tokens_ && tokenizer_.IsSpecial(id)) return;
  if (tokenizer_.TokenBytes(id).empty()) return;
  if (!tokenizer_.is_byte_level()) {
    if (texts_.is_byte(id.value())) {
      AppendByte(texts_[id.value()][0], text);
    } else {
      AppendPiece(id, text);
    }
    return;
  }
  pending_.append(texts_[id.value()]);
  const size_t ready = pending_.size() - TruncatedSuffix(pending_);
  AppendLossy(std::string_view(pending_).substr(0, ready), text);
  pending_.erase(0, ready);
}

void Detokenizer::AppendByte(char byte, std::string& text) {
  pending_.push_back(byte);
  if (tokenizer_.decoding().start != Start::kSpaceDropped) at_start_ = false;
  if (!tokenizer_.decoding().runs_break_whole) AppendCharactersOfBytes(/*complete=*/false, text);
}

void Detokenizer::AppendPiece(TokenId id, std::string& text) {
  FinishBytes(text);
  const Start start = tokenizer_.decoding().start;
  if (!at_start_ || start == Start::kKept || start == Start::kSpaceDropped) {
    Emit(texts_[id.value()], text);
    return;
  }
  const std::string_view piece = texts_.First(id.value());
  at_start_ = start == Start::kMarksDroppedToText && piece.empty();
  text.append(piece);
}

// Hands out the characters at the front of the bytes, and U+FFFD for each byte that starts none.
// What may still become a character waits, unless the run is `complete`.
void Detokenizer::AppendCharactersOfBytes(bool complete, std::string& text) {
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Character character = DecodeUtf8(rest);
    if (character.truncated && !complete) break;
    const size_t length = character.valid ? static_cast<size_t>(character.length) : 1;
    if (character.valid) {
      Emit(rest.substr(0, length), text);
    } else {
      Emit("\uFFFD", text);
    }
    rest.remove_prefix(length);
  }
  pending_.erase(0, pending_.size() - rest.size());
}

void Detokenizer::FinishBytes(std::string& text) {
  if (pending_.empty()) return;
  if (!tokenizer_.decoding().runs_break_whole) {
    AppendCharactersOfBytes(/*complete=*/true, text);
    return;
  }
  if (IsValidUtf8(pending_)) {
    Emit(pending_, text);
  } else {
    for (size_t i = 0; i < pending_.size(); ++i) Emit("\uFFFD", text);
  }
  pending_.clear();
}

void Detokenizer::Emit(std::string_view piece, std::string& text) {
  if (at_start_ && tokenizer_.decoding().start == Start::kSpaceDropped && !piece.empty()) {
    if (piece.front() == ' ') piece.remove_prefix(1);
    at_start_ = false;
  }
  text.append(piece);
}

void Detokenizer::Finish(std::string& text) {
  if (tokenizer_.is_byte_level()) {
    AppendLossy(pending_, text);
    pending_.clear();
  } else {
    FinishBytes(text);
  }
}

}  // namespace spry
