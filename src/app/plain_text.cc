#include "app/plain_text.h"

#include "text/utf8.h"

namespace spry {

bool Steers(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || code == 0x061C ||
         (code >= 0x200E && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string PlainText(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const Utf8Character character = DecodeUtf8(text);
    Steers(character.code) ? plain.push_back(' ') : AppendUtf8(character.code, plain);
    text.remove_prefix(character.length);
  }
  return plain;
}

}  // namespace spry
