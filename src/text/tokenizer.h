// Text to token ids and back, byte for byte as the `tokenizers` library does it, and for
// vocabularies of SentencePiece as that does it.
// Immutable after Create; any number of threads may use one Tokenizer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

class TokenTexts;

class Tokenizer {
 public:
  // Refuses a vocabulary that contradicts itself (a merge whose parts or result do not exist, an
  // id out of range, a pattern that does not compile), naming the entry.
  static Result<std::unique_ptr<Tokenizer>> Create(const VocabSource& source);
  ~Tokenizer();

  // The ids of `text`, which is any bytes; what is not UTF-8 counts as U+FFFD.
  // `add_special_tokens` puts bos (and eos) where the vocabulary says so. Special tokens spelled
  // out in the text become their ids.
  std::vector<TokenId> Encode(std::string_view text, bool add_special_tokens) const;

  // The text of the ids, always valid UTF-8 (broken sequences become U+FFFD), never cleaned up:
  // what was encoded comes back, spaces before punctuation too. Ids without text
  // (padding of the vocabulary) give nothing.
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const;

  // The bytes of one token, which may be part of a character; empty for ids without text.
  std::string_view TokenBytes(TokenId id) const;
  bool IsSpecial(TokenId id) const;

  int vocab_size() const;

  // For the Detokenizer.
  const TokenTexts& texts() const;
  const VocabSource::Decoding& decoding() const;
  bool is_byte_level() const;

 private:
  Tokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spry
