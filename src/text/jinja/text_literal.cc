#include "text/jinja/text_literal.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdint>

#include "text/utf8.h"

namespace spry::jinja {
namespace {

// The character of `digits` hexadecimal digits.
Result<char32_t> HexCharacter(std::string_view text, size_t digits) {
  uint32_t code = 0;
  for (size_t i = 0; i < digits; ++i) {
    if (i >= text.size() || !std::isxdigit(static_cast<uint8_t>(text[i]))) {
      return InvalidArgument(
          fmt::format("an escape in a string lacks digits; expected {} of them", digits));
    }
    const char c = text[i];
    code = code * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    return InvalidArgument(fmt::format("U+{:X} in a string is no character", code));
  }
  return static_cast<char32_t>(code);
}

// What a letter after a backslash stands for; 0 when it is none of these.
char Simple(char c) {
  switch (c) {
    case 'a': return '\a';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'v': return '\v';
    case '\\':
    case '\'':
    case '"': return c;
    default: return '\0';
  }
}

}  // namespace

Result<std::string> UnescapeText(std::string_view literal) {
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];
    const std::string_view after = literal.substr(i + 1);
    const size_t hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (hex > 0) {
      SPRY_ASSIGN_OR_RETURN(const char32_t code, HexCharacter(after, hex));
      AppendUtf8(code, out);
      i += hex;
    } else if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t digits = 0;
      for (; digits < 3 && i + digits < literal.size(); ++digits) {
        const char digit = literal[i + digits];
        if (digit < '0' || digit > '7') break;
        code = code * 8 + static_cast<uint32_t>(digit - '0');
      }
      AppendUtf8(static_cast<char32_t>(code), out);
      i += digits - 1;
    } else if (c == 'N') {
      return InvalidArgument("characters by name (\\N) are not supported in a string");
    } else if (Simple(c) != '\0') {
      out += Simple(c);
    } else if (c != '\n') {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace spry::jinja
