// What Python's str does by characters rather than bytes. Texts are valid UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/utf8.h"

namespace spry::jinja {

// DecodeUtf8, with ASCII decided on the spot: templates go through long texts with it.
inline Utf8Character NextCharacter(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first >= 0x80) return DecodeUtf8(text);
  return {.code = first, .length = 1, .valid = true, .truncated = false};
}

int64_t CountCharacters(std::string_view text);
// Where character `index` begins; the end when there are not so many.
size_t ByteOfCharacter(std::string_view text, int64_t index);
// The bytes of each character.
std::vector<std::string_view> SplitCharacters(std::string_view text);

// Python's white space: it has the separators U+001C to U+001F, which Unicode's property lacks.
bool IsSpace(char32_t code);
bool IsPrintable(char32_t code);
bool IsAlphabetic(char32_t code);
bool IsDecimal(char32_t code);
// Decimals, and superscripts and the like, which int() does not read.
bool IsDigit(char32_t code);
bool IsNumeric(char32_t code);

enum class Sides { kLeft, kRight, kBoth };
// Takes away white space, or the characters of `set`.
std::string_view Strip(std::string_view text, Sides sides,
                       std::optional<std::string_view> set = std::nullopt);

// Linear in the two lengths, whatever they hold. npos when there is none.
size_t FindText(std::string_view text, std::string_view part, size_t from = 0);
size_t RightFindText(std::string_view text, std::string_view part);

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);
// str.title(): a word is a run of letters with case.
std::string ToTitle(std::string_view text);
bool IsUpperText(std::string_view text);
bool IsLowerText(std::string_view text);

}  // namespace spry::jinja
