// A vocabulary of the 256 bytes, then what a test adds.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/vocab_source.h"

namespace spry {

inline VocabSource ByteVocabulary() {
  VocabSource source;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    AppendInAlphabet({&c, 1}, source.pieces.emplace_back());
  }
  return source;
}

inline std::string Spelled(std::string_view bytes) {
  std::string piece;
  AppendInAlphabet(bytes, piece);
  return piece;
}

// Adds the merge of two byte strings, with the token it makes; returns its id.
inline TokenId AddMerge(std::string_view left, std::string_view right, VocabSource& source) {
  source.merges.emplace_back(Spelled(left), Spelled(right));
  source.pieces.push_back(Spelled(std::string(left).append(right)));
  return TokenId(static_cast<int32_t>(source.pieces.size()) - 1);
}

// Adds an added token; returns its id.
inline TokenId AddToken(AddedToken token, VocabSource& source) {
  token.id = TokenId(static_cast<int32_t>(source.pieces.size()));
  source.pieces.push_back(token.content);
  source.added_tokens.push_back(token);
  return token.id;
}

inline AddedToken Special(std::string content) {
  AddedToken token{};
  token.content = std::move(content);
  token.special = true;
  return token;
}

inline void CutBy(std::string pattern, VocabSource& source) {
  VocabSource::Split split;
  split.pattern = std::move(pattern);
  source.splits.push_back(split);
}

inline std::unique_ptr<Tokenizer> Build(const VocabSource& source) {
  auto tokenizer = Tokenizer::Create(source);
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

// The ids of bytes that stand alone.
inline std::vector<TokenId> BytesOf(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.emplace_back(static_cast<unsigned char>(c));
  return ids;
}

}  // namespace spry
