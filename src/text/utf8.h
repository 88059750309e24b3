// UTF-8, strict: shortest forms only, no surrogates, nothing above U+10FFFF. Broken bytes become
// U+FFFD by the rule of Unicode 3.9 ("maximal subparts"), which Python's errors='replace' and
// Rust's from_utf8_lossy follow too.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spry {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct Utf8Character {
  char32_t code;
  int length;  // of a broken sequence: how many bytes one U+FFFD stands for
  bool valid;
  bool truncated;  // broken only because the text ends here
};

// The character at the start of `text`, which is not empty.
Utf8Character DecodeUtf8(std::string_view text);

// The character that ends at the end of `text`, which is valid and not empty.
char32_t LastCharacter(std::string_view text);

void AppendUtf8(char32_t code, std::string& text);

bool IsValidUtf8(std::string_view bytes);

// Appends `bytes`, each broken sequence replaced by U+FFFD.
void AppendLossy(std::string_view bytes, std::string& text);

// How many bytes at the end of `bytes` are the start of a character that is still to be completed:
// 0 to 3.
size_t TruncatedSuffix(std::string_view bytes);

}  // namespace spry
