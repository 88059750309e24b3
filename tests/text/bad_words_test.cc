#include "text/bad_words.h"

#include <gtest/gtest.h>

#include "tests/text/tiny_vocabulary.h"

namespace spry {
namespace {

using Sequences = std::vector<std::vector<TokenId>>;

Sequences Encode(const VocabSource& source, std::vector<std::string> words) {
  const auto sequences = EncodeBadWords(*Build(source), words);
  EXPECT_TRUE(sequences.ok()) << sequences.status().message();
  return sequences.ok() ? *sequences : Sequences();
}

// A vocabulary where "ab" and " ab" are one token each, "ba" two and " ba" three.
TEST(BadWords, TheSpacedFormCountsWhereItIsAsLongAndBeginsOtherwise) {
  VocabSource source = ByteVocabulary();
  const TokenId ab = AddMerge("a", "b", source);
  const TokenId spaced = AddMerge(" ", "ab", source);
  const auto tokenizer = Build(source);
  ASSERT_EQ(tokenizer->Encode(" ab", /*add_special_tokens=*/false), std::vector{spaced});
  EXPECT_EQ(Encode(source, {"ab"}), (Sequences{{ab}, {spaced}}));
  EXPECT_EQ(Encode(source, {" ab"}), Encode(source, {"ab"}));
  EXPECT_EQ(Encode(source, {"\t \u3000ab"}), Encode(source, {"ab"}));
  const Sequences ba = {tokenizer->Encode("ba", /*add_special_tokens=*/false)};
  EXPECT_EQ(ba[0].size(), 2u);
  EXPECT_EQ(Encode(source, {"ba"}), ba);
  EXPECT_EQ(Encode(source, {"ba", "ab"}), (Sequences{ba[0], {ab}, {spaced}}));
  EXPECT_EQ(Encode(source, {}), Sequences());
}

TEST(BadWords, BlankWordsAreRefusedByIndex) {
  const auto tokenizer = Build(ByteVocabulary());
  for (const std::string blank : {"", " ", "\n\u2003"}) {
    const auto sequences = EncodeBadWords(*tokenizer, std::vector<std::string>{"a", blank});
    ASSERT_FALSE(sequences.ok());
    EXPECT_EQ(sequences.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(sequences.status().message().find("bad_words[1]"), std::string::npos);
  }
}

}  // namespace
}  // namespace spry
