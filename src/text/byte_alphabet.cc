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
  while (!piece.empty()) {
    const Utf8Character character = DecodeUtf8(piece);
    const int byte =
        character.valid && character.code < kAlphabetEnd ? kAlphabet.to_byte[character.code] : -1;
    if (byte < 0) {
      bytes.resize(start);
      return false;
    }
    bytes.push_back(static_cast<char>(byte));
    piece.remove_prefix(character.length);
  }
  return true;
}

void AppendInAlphabet(std::string_view bytes, std::string& piece) {
  for (const char byte : bytes) AppendUtf8(kAlphabet.of_byte[static_cast<uint8_t>(byte)], piece);
}

}  // namespace spry
