// Turns a stream of tokens into a stream of text. Each piece handed out is valid UTF-8; bytes of a
// character that is not complete are held back until it is, or until Finish. The joined pieces
// equal Tokenizer::Decode of all the tokens.
#pragma once

#include <string>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace spry {

class Detokenizer {
 public:
  // `tokenizer` must outlive this.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  // Appends to `text` what `id` makes readable.
  void Append(TokenId id, std::string& text);
  // Appends what was held back; broken bytes become U+FFFD.
  void Finish(std::string& text);

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;  // at most three bytes: a prefix of one character
};

}  // namespace spry
