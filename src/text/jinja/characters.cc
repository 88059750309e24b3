#include "text/jinja/characters.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace spry::jinja {
namespace {

bool IsFirstByte(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

utf8proc_category_t CategoryOf(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool IsStripped(char32_t code, std::optional<std::string_view> set, std::string_view character) {
  return set ? set->find(character) != std::string_view::npos : IsSpace(code);
}

bool IsLineEnd(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

int64_t CountCharacters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), IsFirstByte);
}

size_t ByteOfCharacter(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (IsFirstByte(text[at]) && index-- == 0) break;
  }
  return at;
}

std::vector<std::string_view> SplitCharacters(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && !IsFirstByte(text[end])) ++end;
    characters.push_back(text.substr(at, end - at));
    at = end;
  }
  return characters;
}

bool IsSpace(char32_t code) {
  if (code < 0x80)
    return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0x2028 || code == 0x2029 ||
         CategoryOf(code) == UTF8PROC_CATEGORY_ZS;
}

bool IsPrintable(char32_t code) {
  if (code < 0x80) return code >= 0x20 && code != 0x7F;
  switch (CategoryOf(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool IsAlphabetic(char32_t code) {
  if (code < 0x80) return (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
  const utf8proc_category_t category = CategoryOf(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return CategoryOf(code) == UTF8PROC_CATEGORY_ND;
}

bool IsDigit(char32_t code) {
  return IsDecimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) ||
         (code >= 0x2460 && code <= 0x2468) || (code >= 0x2474 && code <= 0x247C) ||
         (code >= 0x2488 && code <= 0x2490);
}

bool IsNumeric(char32_t code) {
  if (code < 0x80) return IsDecimal(code);
  const utf8proc_category_t category = CategoryOf(code);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

std::string_view Strip(std::string_view text, Sides sides, std::optional<std::string_view> set) {
  if (sides != Sides::kRight) {
    while (!text.empty()) {
      const Utf8Character first = NextCharacter(text);
      if (!IsStripped(first.code, set, text.substr(0, first.length))) break;
      text.remove_prefix(first.length);
    }
  }
  if (sides == Sides::kLeft) return text;
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && !IsFirstByte(text[begin])) --begin;
    const std::string_view last = text.substr(begin);
    if (!IsStripped(NextCharacter(last).code, set, last)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // std::string::find may take time of the product of the lengths; memmem takes that of the sum.
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t RightFindText(std::string_view text, std::string_view part) {
  std::string turned_text(text.rbegin(), text.rend());
  const std::string turned_part(part.rbegin(), part.rend());
  const size_t found = FindText(turned_text, turned_part);
  return found == std::string_view::npos ? found : text.size() - found - part.size();
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = NextCharacter(text.substr(at));
    size_t next = at + static_cast<size_t>(character.length);
    if (IsLineEnd(character.code)) {
      if (character.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace spry::jinja
