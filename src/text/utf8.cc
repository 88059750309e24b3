#include "text/utf8.h"

#include <algorithm>
#include <cstdint>

namespace spry {
namespace {

struct LeadByte {
  int length;    // of the whole character; 0: not a lead byte
  uint8_t low;   // the second byte lies in [low, high], which shuts out overlong forms,
  uint8_t high;  // surrogates and what is above U+10FFFF
};

LeadByte ClassifyLead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// The length of the ASCII run at the start of `text`.
size_t AsciiPrefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
  return i;
}

}  // namespace

Utf8Character DecodeUtf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const LeadByte lead = ClassifyLead(byte(0));
  if (lead.length == 1) return {byte(0), 1, true, false};
  if (lead.length == 0) return {kReplacementCharacter, 1, false, false};
  char32_t code = byte(0) & (0x7F >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    if (static_cast<size_t>(i) == text.size()) return {kReplacementCharacter, i, false, true};
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {kReplacementCharacter, i, false, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, lead.length, true, false};
}

char32_t LastCharacter(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return DecodeUtf8(text.substr(start)).code;
}

void AppendUtf8(char32_t code, std::string& text) {
  const auto push = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { push(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    push(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    push(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

bool IsValidUtf8(std::string_view bytes) {
  while (!bytes.empty()) {
    bytes.remove_prefix(AsciiPrefix(bytes));
    if (bytes.empty()) break;
    const Utf8Character character = DecodeUtf8(bytes);
    if (!character.valid) return false;
    bytes.remove_prefix(character.length);
  }
  return true;
}

void AppendLossy(std::string_view bytes, std::string& text) {
  while (!bytes.empty()) {
    const size_t ascii = AsciiPrefix(bytes);
    text.append(bytes.substr(0, ascii));
    bytes.remove_prefix(ascii);
    if (bytes.empty()) break;
    const Utf8Character character = DecodeUtf8(bytes);
    if (character.valid) {
      text.append(bytes.substr(0, character.length));
    } else {
      AppendUtf8(kReplacementCharacter, text);
    }
    bytes.remove_prefix(character.length);
  }
}

size_t TruncatedSuffix(std::string_view bytes) {
  const size_t longest = std::min<size_t>(3, bytes.size());
  for (size_t length = 1; length <= longest; ++length) {
    const std::string_view suffix = bytes.substr(bytes.size() - length);
    const auto first = static_cast<uint8_t>(suffix[0]);
    if ((first & 0xC0) == 0x80) continue;  // a continuation byte: its lead lies further left
    const Utf8Character character = DecodeUtf8(suffix);
    const bool whole = static_cast<size_t>(character.length) == length;
    return character.truncated && whole ? length : 0;
  }
  return 0;
}

}  // namespace spry
