#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace spry {
namespace {

std::string Lossy(std::string_view bytes) {
  std::string text;
  AppendLossy(bytes, text);
  return text;
}

constexpr const char* kBad = "\xEF\xBF\xBD";

// What Python's bytes.decode("utf-8", errors="replace") gives for the same bytes.
TEST(Utf8, BrokenBytesBecomeOneReplacementPerMaximalSubpart) {
  const std::string bad = kBad;
  const std::pair<std::string, std::string> cases[] = {
      {"\xC3\x28", bad + "("},
      {"\x80", bad},
      {"\xC0\xAF", bad + bad},                      // overlong
      {"\xE0\x80\x80", bad + bad + bad},            // overlong
      {"\xED\xA0\x80", bad + bad + bad},            // a surrogate
      {"\xF4\x90\x80\x80", bad + bad + bad + bad},  // above U+10FFFF
      {"\xF0\x9F\x98", bad},                        // cut short
      {"\xF0\x9F\x98x", bad + "x"},
      {"\xE2\x82\xE2\x82\xAC", bad + "\xE2\x82\xAC"},
      {"\xF5\xFF", bad + bad},
      {"a\xF0\x9F\x98\x80"
       "b",
       "a\xF0\x9F\x98\x80"
       "b"},
  };
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(Lossy(bytes), text);
    EXPECT_EQ(IsValidUtf8(bytes), bytes == text);
  }
}

TEST(Utf8, EveryCharacterGoesThereAndBack) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code == 0xD800) code = 0xE000;
    std::string text;
    AppendUtf8(code, text);
    const Utf8Character character = DecodeUtf8(text);
    ASSERT_TRUE(character.valid);
    ASSERT_EQ(character.code, code);
    ASSERT_EQ(static_cast<size_t>(character.length), text.size());
    ASSERT_EQ(LastCharacter(std::string("ab").append(text)), code);
    // Each proper prefix waits for more.
    for (size_t length = 1; length < text.size(); ++length) {
      ASSERT_EQ(TruncatedSuffix(std::string("x").append(text, 0, length)), length);
    }
    ASSERT_EQ(TruncatedSuffix(text), 0u);
  }
}

TEST(Utf8, WhatCannotBeCompletedDoesNotWait) {
  EXPECT_EQ(TruncatedSuffix(""), 0u);
  EXPECT_EQ(TruncatedSuffix("\x80\x80"), 0u);
  EXPECT_EQ(TruncatedSuffix("\xE0\x80"), 0u);
  EXPECT_EQ(TruncatedSuffix("\xED\xA0"), 0u);
  EXPECT_EQ(TruncatedSuffix("\xFF"), 0u);
  EXPECT_EQ(TruncatedSuffix("\xE2\x82\xAC\x82"), 0u);
}

}  // namespace
}  // namespace spry
