#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/text/tiny_vocabulary.h"
#include "text/utf8.h"

namespace spry {
namespace {

// What is handed out token by token, and at the end.
std::vector<std::string> Stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                                bool skip_special_tokens) {
  Detokenizer detokenizer(tokenizer, skip_special_tokens);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) detokenizer.Append(id, pieces.emplace_back());
  detokenizer.Finish(pieces.emplace_back());
  return pieces;
}

// B016: nothing generated, no text.
TEST(Detokenizer, NoTokensGiveNoText) {
  const auto tokenizer = Build(ByteVocabulary());
  EXPECT_EQ(Stream(*tokenizer, {}, /*skip_special_tokens=*/true), std::vector<std::string>{""});
}

// B017: spaces stay where decoding all at once has them.
TEST(Detokenizer, KeepsSpacesOfEachToken) {
  VocabSource source = ByteVocabulary();
  const TokenId leading = AddMerge(" ", "l", source);
  const TokenId x = AddMerge(" ", "x", source);
  const auto tokenizer = Build(source);
  EXPECT_EQ(Stream(*tokenizer, {TokenId(' '), leading, x}, /*skip_special_tokens=*/true),
            (std::vector<std::string>{" ", " l", " x", ""}));
}

// B020: half a character waits for the other half. B019: and becomes U+FFFD if that never comes.
TEST(Detokenizer, HoldsBackHalfCharacters) {
  const auto tokenizer = Build(ByteVocabulary());
  EXPECT_EQ(Stream(*tokenizer, BytesOf("a\U0001F600b"), /*skip_special_tokens=*/true),
            (std::vector<std::string>{"a", "", "", "", "\U0001F600", "b", ""}));
  EXPECT_EQ(Stream(*tokenizer, BytesOf("\xF0"), /*skip_special_tokens=*/true),
            (std::vector<std::string>{"", "\uFFFD"}));
  EXPECT_EQ(Stream(*tokenizer, BytesOf("\xE4\xB8!"), /*skip_special_tokens=*/true),
            (std::vector<std::string>{"", "", "\uFFFD!", ""}));
}

TEST(Detokenizer, SpecialTokensAreShownOrSkipped) {
  VocabSource source = ByteVocabulary();
  const TokenId end = AddToken(Special("</s>"), source);
  AddedToken plain = Special("<tool>");
  plain.special = false;
  const TokenId tool = AddToken(plain, source);
  const auto tokenizer = Build(source);
  EXPECT_EQ(Stream(*tokenizer, {tool, end}, /*skip_special_tokens=*/true),
            (std::vector<std::string>{"<tool>", "", ""}));
  EXPECT_EQ(Stream(*tokenizer, {tool, end}, /*skip_special_tokens=*/false),
            (std::vector<std::string>{"<tool>", "</s>", ""}));
}

// Any tokens in any order: each piece is UTF-8 by itself, all together are the whole decode, and
// never are more than three bytes held back.
TEST(Detokenizer, JoinedStreamIsTheWholeDecode) {
  VocabSource source = ByteVocabulary();
  AddMerge("\xE4", "\xB8", source);
  AddMerge("\x98", "\x80", source);
  AddMerge("\xF0", "\x9F", source);
  AddMerge("\xF0\x9F", "a", source);
  AddMerge("\xA9", "\xE2", source);
  AddMerge("\xC3", "\xA9\xE2", source);
  AddToken(Special("<s>"), source);
  AddToken(Special("\u00e9"), source);  // reads as one broken byte, as in the reference
  source.pieces.resize(source.pieces.size() + 4);
  const auto tokenizer = Build(source);
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<TokenId> ids;
    for (int length = random() % 12; length > 0; --length) {
      const uint32_t kind = random() % 4;
      const uint32_t high = 0xC0 + random() % 0x40;  // a lead byte, or none at all
      const uint32_t continuation = 0x80 + random() % 0x40;
      ids.emplace_back(static_cast<int32_t>(kind == 0   ? random() % (source.pieces.size() + 3)
                                            : kind == 1 ? high
                                                        : continuation));
    }
    const bool skip = round % 2 == 0;
    std::string joined;
    for (const std::string& piece : Stream(*tokenizer, ids, skip)) {
      ASSERT_TRUE(IsValidUtf8(piece));
      joined += piece;
    }
    ASSERT_EQ(joined, tokenizer->Decode(ids, skip));
  }
}

}  // namespace
}  // namespace spry
