#include "text/precompiled_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/base64.h"
#include "text/utf8.h"

namespace spry {
namespace {

using testing::HasSubstr;

std::string U32(uint32_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
  return bytes;
}

// The trie of "A" -> "x", "AB" -> "yz", "C" -> "", by hand. The root's children start at 256, those
// of A at 512; the values of A, AB and C are at 512, 768 and 1024.
std::string HandMadeMap() {
  constexpr uint32_t kHasValue = 1u << 8;
  std::vector<uint32_t> units(1280);
  const auto set = [&](uint32_t at, uint32_t next, uint32_t flags, char byte) {
    units[at] = (at ^ next) << 10 | flags | static_cast<uint8_t>(byte);
  };
  set(0, 256, 0, 0);
  set(256 ^ 'A', 512, kHasValue, 'A');
  set(512 ^ 'B', 768, kHasValue, 'B');
  set(256 ^ 'C', 1024, kHasValue, 'C');
  units[512] = 1u << 31 | 0;
  units[768] = 1u << 31 | 2;
  units[1024] = 1u << 31 | 5;
  std::string blob = U32(static_cast<uint32_t>(units.size()) * 4);
  for (const uint32_t unit : units) blob += U32(unit);
  return blob + std::string("x\0yz\0\0", 6);
}

TEST(PrecompiledMap, FindsTheShortestAndTheLongest) {
  const auto map = PrecompiledMap::Create(HandMadeMap());
  ASSERT_TRUE(map.ok()) << map.status().message();
  EXPECT_EQ(map->Longest("ABC")->replacement, "yz");
  EXPECT_EQ(map->Longest("ABC")->length, 2u);
  EXPECT_EQ(map->Shortest("ABC")->replacement, "x");
  EXPECT_EQ(map->Longest("C")->replacement, "");
  EXPECT_FALSE(map->Longest("BA").has_value());
  EXPECT_FALSE(map->Longest("").has_value());
  EXPECT_FALSE(map->Longest(std::string_view("\0", 1)).has_value());
}

// A short grapheme is replaced as a whole by what its start stands for; a long one is not.
TEST(PrecompiledMap, GraphemesAsTheReference) {
  const auto map = PrecompiledMap::Create(HandMadeMap());
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->ReplaceGraphemes("ABCA"), "xBx");
  EXPECT_EQ(map->ReplaceGraphemes("A\u0301B"), "xB");
  EXPECT_EQ(map->ReplaceGraphemes("A\u0301\u0301\u0301B"), "x\u0301\u0301\u0301B");
  EXPECT_EQ(map->ReplaceGraphemes(""), "");
}

TEST(PrecompiledMap, DamagedBlobsAreRefusedOrHarmless) {
  const std::string good = HandMadeMap();
  for (const std::string& blob : {std::string(), std::string("abc"), U32(0), U32(8) + "1234",
                                  U32(3) + "123", U32(0xFFFFFFFC) + "1234"}) {
    EXPECT_THAT(PrecompiledMap::Create(blob).status().message(),
                HasSubstr("expected a multiple of 4 that fits"));
  }
  std::mt19937 random(23);
  for (int round = 0; round < 2'000; ++round) {
    std::string blob = good;
    for (int i = 0; i < 300; ++i) blob[random() % blob.size()] = static_cast<char>(random());
    if (round % 4 == 0) blob.resize(random() % blob.size());
    const auto map = PrecompiledMap::Create(blob);
    if (!map.ok()) continue;
    std::string text;
    for (int i = 0; i < 50; ++i) AppendUtf8(random() % 0xD800, text);
    map->ReplaceGraphemes(text + "ABCABC");
    for (size_t i = 0; i < text.size(); ++i) map->Longest(std::string_view(text).substr(i));
  }
}

TEST(Base64, DecodesAndRefuses) {
  EXPECT_EQ(DecodeBase64(""), "");
  EXPECT_EQ(DecodeBase64("YQ=="), "a");
  EXPECT_EQ(DecodeBase64("YWI="), "ab");
  EXPECT_EQ(DecodeBase64("YWJj"), "abc");
  EXPECT_EQ(DecodeBase64("+/8"), "\xFB\xFF");
  EXPECT_EQ(DecodeBase64("Y"), std::nullopt);
  EXPECT_EQ(DecodeBase64("YW J"), std::nullopt);
  EXPECT_EQ(DecodeBase64("Y==="), std::nullopt);
}

}  // namespace
}  // namespace spry
