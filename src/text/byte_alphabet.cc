#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace spry {
namespace {

constexpr int kAlphabetEnd = 0x144;  // one above the last character of the alphabet

struct Alphabet {
  std::array<char16_t, 256> of_byte{};
  std::array<int16_t, kAlphabetEnd> to_byte{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.to_byte) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    const int character = printable ? byte : next++;
    alphabet.of_byte[byte] = static_cast<char16_t>(character);
    alphabet.to_byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

bool AppendAlphabetBytes(std::string_view piece, std::string& bytes) {
  const size_t start = bytes.size();
  bytes.resize(start + piece.size());  // an upper bound
  char* out = bytes.data() + start;
  for (size_t i = 0; i < piece.size(); ++i) {
    int code = static_cast<uint8_t>(piece[i]);
    if (code >= 0x80) {
      // Above ASCII the alphabet has two-byte characters only: U+00A1 to U+0143.
      const bool two = code >= 0xC2 && code <= 0xC5 && i + 1 < piece.size() &&
                       (static_cast<uint8_t>(piece[i + 1]) & 0xC0) == 0x80;
      code = two ? (code & 0x1F) << 6 | (static_cast<uint8_t>(piece[++i]) & 0x3F) : kAlphabetEnd;
    }
    const int byte = code < kAlphabetEnd ? kAlphabet.to_byte[code] : -1;
    if (byte < 0) {
      bytes.resize(start);
      return false;
    }
    *out++ = static_cast<char>(byte);
  }
  bytes.resize(static_cast<size_t>(out - bytes.data()));
  return true;
}

void AppendInAlphabet(std::string_view bytes, std::string& piece) {
  for (const char byte : bytes) AppendUtf8(kAlphabet.of_byte[static_cast<uint8_t>(byte)], piece);
}

}  // namespace spry
