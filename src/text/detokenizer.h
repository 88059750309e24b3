// Turns a stream of tokens into a stream of text. Each piece handed out is valid UTF-8; what later
// tokens may still change is held back: the bytes of a character that is not complete, and with
// Decoding::runs_break_whole a whole run of byte pieces. The joined pieces equal
// Tokenizer::Decode of all the tokens.
#pragma once

#include <string>
#include <string_view>

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
  void AppendByte(char byte, std::string& text);
  void AppendPiece(TokenId id, std::string& text);
  void AppendCharactersOfBytes(bool complete, std::string& text);
  void FinishBytes(std::string& text);
  void Emit(std::string_view piece, std::string& text);

  const Tokenizer& tokenizer_;
  const TokenTexts& texts_;
  bool skip_special_tokens_;
  bool at_start_ = true;  // nothing yet that ends Decoding::start's rule
  std::string pending_;   // bytes held back
};

}  // namespace spry
