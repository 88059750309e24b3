#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

namespace spry {
namespace {

using Include = StopScanner::Include;

struct Stopped {
  std::string text;
  std::optional<int> found;
  bool operator==(const Stopped&) const = default;
};

Stopped Scan(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
             Include include = Include::kNo) {
  StopScanner scanner(stops, include);
  Stopped result;
  for (const std::string& piece : pieces) scanner.Append(piece, result.text);
  scanner.Finish(result.text);
  result.found = scanner.found();
  return result;
}

// The same by looking at every prefix of the whole text.
Stopped Plain(const std::vector<std::string>& stops, const std::string& text, Include include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string_view prefix = std::string_view(text).substr(0, end);
    std::optional<int> longest;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!prefix.ends_with(stops[i])) continue;
      if (!longest || stops[i].size() > stops[*longest].size()) longest = static_cast<int>(i);
    }
    if (!longest) continue;
    const size_t dropped = include == Include::kYes ? 0 : stops[*longest].size();
    return {text.substr(0, end - dropped), longest};
  }
  return {text, std::nullopt};
}

TEST(StopScanner, EndsAtAStringThatStraddlesPieces) {
  EXPECT_EQ(Scan({"STOP"}, {"go on S", "TO", "P and more"}), (Stopped{"go on ", 0}));
  EXPECT_EQ(Scan({"STOP"}, {"go on S", "TO", "P and more"}, Include::kYes),
            (Stopped{"go on STOP", 0}));
}

TEST(StopScanner, EndsInsideAPieceAndTakesNothingAfterwards) {
  EXPECT_EQ(Scan({"\n\n"}, {"one\n\ntwo\n\n", "three"}), (Stopped{"one", 0}));
}

TEST(StopScanner, TheFirstToBeCompleteCountsAndOfThoseTheLongest) {
  EXPECT_EQ(Scan({"bcd", "abcdef"}, {"xabcdef"}), (Stopped{"xa", 0}));
  EXPECT_EQ(Scan({"cd", "abcd", "d"}, {"xab", "cd"}), (Stopped{"x", 1}));
}

TEST(StopScanner, HoldsBackOnlyWhatMayBecomeAStopString) {
  StopScanner scanner({"aab", "zz"}, Include::kNo);
  std::string text;
  scanner.Append("xa", text);
  EXPECT_EQ(text, "x");
  scanner.Append("aa", text);  // "aaa": the last two may go on
  EXPECT_EQ(text, "xa");
  scanner.Append("c", text);
  EXPECT_EQ(text, "xaaac");
  scanner.Append("z", text);
  EXPECT_EQ(text, "xaaac");
  scanner.Finish(text);  // by length
  EXPECT_EQ(text, "xaaacz");
  EXPECT_EQ(scanner.found(), std::nullopt);
}

TEST(StopScanner, WhatIsPassedIsNotLookedAt) {
  StopScanner scanner({"ab"}, Include::kNo);
  std::string text;
  scanner.Pass("ab a", text);
  EXPECT_EQ(text, "ab a");
  scanner.Append("b", text);  // its beginning was passed
  EXPECT_EQ(text, "ab ab");
  scanner.Append("ab", text);
  EXPECT_EQ(text, "ab ab");
  EXPECT_EQ(scanner.found(), 0);
}

TEST(StopScanner, WithoutStringsEverythingPasses) {
  EXPECT_EQ(Scan({}, {"any", "thing"}), (Stopped{"anything", std::nullopt}));
}

// Two letters, so that strings overlap each other and themselves all the time.
std::string RandomText(std::mt19937_64& random, size_t most) {
  std::string text(random() % most + 1, 'a');
  for (char& letter : text) letter = random() % 3 == 0 ? 'b' : 'a';
  return text;
}

TEST(StopScanner, JoinedPiecesEqualTheWholeText) {
  std::mt19937_64 random(4);
  constexpr int kCases = 100'000;
  int found = 0;
  for (int i = 0; i < kCases; ++i) {
    std::vector<std::string> stops;
    for (uint64_t n = random() % 4; n > 0; --n) stops.push_back(RandomText(random, 6));
    std::vector<std::string> pieces;
    std::string whole;
    for (uint64_t n = random() % 8; n > 0; --n) {
      pieces.push_back(RandomText(random, 5));
      whole += pieces.back();
    }
    const Include include = random() % 2 == 0 ? Include::kNo : Include::kYes;
    const Stopped expected = Plain(stops, whole, include);
    ASSERT_EQ(Scan(stops, pieces, include), expected) << whole;
    found += expected.found.has_value();
  }
  EXPECT_GT(found, kCases / 4);
  EXPECT_LT(found, kCases * 9 / 10);
}

}  // namespace
}  // namespace spry
