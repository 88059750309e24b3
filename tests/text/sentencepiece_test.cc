// SentencePiece's kind of BPE, on vocabularies small enough to follow by hand.
#include "text/scored_bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/text/tiny_sentencepiece.h"
#include "tests/text/tiny_vocabulary.h"
#include "text/detokenizer.h"

namespace spry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Pieces(const VocabSource& source, std::string_view text) {
  std::vector<std::string> pieces;
  for (const TokenId id : Build(source)->Encode(text, /*add_special_tokens=*/false)) {
    pieces.push_back(source.pieces[id.value()]);
  }
  return pieces;
}

// "word" wins over "▁▁", as in Llama's vocabulary.
VocabSource WordVocabulary() {
  return TinyLlama({{"\u2581", -10},
                    {"w", -11},
                    {"o", -11},
                    {"r", -11},
                    {"d", -11},
                    {"wo", -1},
                    {"rd", -2},
                    {"word", -3},
                    {"\u2581word", -4},
                    {"\u2581\u2581", -5}});
}

TEST(ScoredBpe, BestScoreMergesFirstThenLeftmost) {
  VocabSource source = TinyLlama({{"a", -9}, {"b", -9}, {"ab", -2}, {"ba", -1}, {"aa", -3}});
  source.sentence_piece.add_dummy_prefix = false;
  EXPECT_THAT(Pieces(source, "aba"), ElementsAre("a", "ba"));
  EXPECT_THAT(Pieces(source, "aaa"), ElementsAre("aa", "a"));
}

// An unused piece is only a step on the way; what stays of it is what it was made of.
TEST(ScoredBpe, UnusedPiecesComeApart) {
  VocabSource source = TinyLlama({{"a", -9},
                                  {"b", -9},
                                  {"ab", -1, PieceType::kUnused},
                                  {"abb", -2},
                                  {"abab", -3, PieceType::kUnused}});
  source.sentence_piece.add_dummy_prefix = false;
  EXPECT_THAT(Pieces(source, "abb"), ElementsAre("abb"));
  EXPECT_THAT(Pieces(source, "ab"), ElementsAre("a", "b"));
  EXPECT_THAT(Pieces(source, "abab"), ElementsAre("a", "b", "a", "b"));
}

TEST(ScoredBpe, UnknownCharactersBecomeBytesOrOneUnknownToken) {
  VocabSource source = TinyLlama({{"\u2581", -1}, {"a", -1}});
  EXPECT_THAT(Pieces(source, "a\u00e9"), ElementsAre("\u2581", "a", "<0xC3>", "<0xA9>"));
  source.byte_fallback = false;
  EXPECT_THAT(Pieces(source, "a\u00e9\u00e8a\u00e9"),
              ElementsAre("\u2581", "a", "<unk>", "a", "<unk>"));
  source.unknown.reset();
  const auto refused = Tokenizer::Create(source);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("neither an unknown token nor the byte pieces"));
}

TEST(ScoredBpe, RefusesScoresThatDoNotFit) {
  VocabSource source = TinyLlama({{"a", -1}});
  source.scores[3] = NAN;
  EXPECT_THAT(Tokenizer::Create(source).status().message(), HasSubstr("score of token 3 is nan"));
  source.scores.pop_back();
  EXPECT_THAT(Tokenizer::Create(source).status().message(),
              HasSubstr("259 scores; expected one for each of 260"));
}

// B001: behind a special token a lone space stays a piece of its own, and the word keeps its mark.
TEST(SentencePiece, SpacesBehindASpecialToken) {
  const VocabSource source = WordVocabulary();
  EXPECT_THAT(Pieces(source, "<s>  word"), ElementsAre("<s>", "\u2581", "\u2581word"));
  EXPECT_THAT(Pieces(source, "<s> word"), ElementsAre("<s>", "\u2581word"));
  EXPECT_THAT(Pieces(source, "<s>word"), ElementsAre("<s>", "\u2581word"));
  EXPECT_THAT(Pieces(source, " word"), ElementsAre("\u2581", "\u2581word"));
  VocabSource not_legacy = source;
  not_legacy.sentence_piece.prefix_after_special = false;
  EXPECT_THAT(Pieces(not_legacy, "<s>word"), ElementsAre("<s>", "word"));
  EXPECT_THAT(Pieces(not_legacy, "<s>  word"), ElementsAre("<s>", "\u2581", "\u2581word"));
}

// B002: the word right behind an added token that is not special has no mark.
TEST(SentencePiece, NoMarkBehindAPlainAddedToken) {
  VocabSource source = WordVocabulary();
  AddedToken start{};
  start.content = "<|im_start|>";
  AddToken(start, source);
  source.scores.push_back(0);
  EXPECT_THAT(Pieces(source, "<|im_start|>word"), ElementsAre("<|im_start|>", "word"));
  EXPECT_THAT(Pieces(source, "<|im_start|> word"), ElementsAre("<|im_start|>", "\u2581word"));
}

TEST(SentencePiece, ExtraSpacesGoWhereTheModelSaysSo) {
  VocabSource source = WordVocabulary();
  source.sentence_piece.remove_extra_whitespaces = true;
  EXPECT_THAT(Pieces(source, "  word   word "), ElementsAre("\u2581word", "\u2581word"));
  EXPECT_THAT(Pieces(source, "   "), ElementsAre());
  source.sentence_piece.whitespace_as_suffix = true;
  EXPECT_THAT(Pieces(source, "word"), ElementsAre("word", "\u2581"));
}

// B010: only byte pieces are bytes, on the way in and on the way out.
TEST(SentencePiece, ALiteralByteNameIsText) {
  VocabSource source = TinyLlama({{"\u2581", -9},
                                  {"<0x4", -1},
                                  {"<", -9},
                                  {"0", -9},
                                  {"x", -9},
                                  {"4", -9},
                                  {"<0", -3},
                                  {"<0x", -2},
                                  {"0>", -2},
                                  {">", -9}});
  const auto tokenizer = Build(source);
  const std::string text = "print <0x40> please";
  const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/false);
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/true), text);
  for (const TokenId id : ids) EXPECT_NE(source.pieces[id.value()], "<0x40>");
}

// Texts of one character, which merge into all of the vocabulary's lengths: quadratic work would
// take hours.
TEST(ScoredBpe, AMegabyteOfOneCharacterIsFast) {
  std::vector<TinyPiece> pieces;
  for (int length = 1; length <= 64; length *= 2) {
    pieces.push_back({std::string(length, 'a'), static_cast<float>(-length)});
  }
  VocabSource source = TinyLlama(pieces);
  source.sentence_piece.add_dummy_prefix = false;
  const auto tokenizer = Build(source);
  const auto begin = std::chrono::steady_clock::now();
  const auto ids = tokenizer->Encode(std::string(1 << 20, 'a'), /*add_special_tokens=*/false);
  EXPECT_EQ(ids.size(), (1u << 20) / 64);
  EXPECT_EQ(tokenizer->Encode(std::string(1 << 20, 'b'), /*add_special_tokens=*/false).size(),
            1u << 20);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

std::vector<std::string> Stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, /*skip_special_tokens=*/true);
  std::vector<std::string> pieces;
  for (const TokenId id : ids) detokenizer.Append(id, pieces.emplace_back());
  detokenizer.Finish(pieces.emplace_back());
  return pieces;
}

TokenId IdOf(const VocabSource& source, std::string_view piece) {
  for (size_t i = 0; i < source.pieces.size(); ++i) {
    if (source.pieces[i] == piece) return TokenId(static_cast<int32_t>(i));
  }
  return TokenId(-1);
}

std::vector<TokenId> IdsOf(const VocabSource& source, const std::vector<std::string>& pieces) {
  std::vector<TokenId> ids;
  for (const std::string& piece : pieces) ids.push_back(IdOf(source, piece));
  return ids;
}

// B017: only the prefix of the whole text goes; the spaces of later chunks stay.
TEST(SentencePieceDetokenizer, KeepsTheSpacesOfEachChunk) {
  const VocabSource source = WordVocabulary();
  const auto tokenizer = Build(source);
  const auto ids = IdsOf(source, {"\u2581", "\u2581word", "\u2581word"});
  EXPECT_EQ(Stream(*tokenizer, ids), (std::vector<std::string>{"", " word", " word", ""}));
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/true), " word word");
  // Skipped tokens are not text.
  EXPECT_EQ(tokenizer->Decode(IdsOf(source, {"<s>", "\u2581word"}), /*skip_special_tokens=*/true),
            "word");
  EXPECT_EQ(tokenizer->Decode(IdsOf(source, {"<s>", "\u2581word"}), /*skip_special_tokens=*/false),
            "<s> word");
}

// B019, B020: a character's bytes over several tokens come out with the last of them.
TEST(SentencePieceDetokenizer, BytesWaitForTheirCharacter) {
  const VocabSource source = WordVocabulary();
  const auto tokenizer = Build(source);
  const auto smile = IdsOf(source, {"<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "w"});
  EXPECT_EQ(Stream(*tokenizer, smile),
            (std::vector<std::string>{"", "", "", "\U0001F600", "w", ""}));
  const auto broken = IdsOf(source, {"<0xE4>", "<0xB8>", "w", "<0xF0>", "<0x9F>"});
  EXPECT_EQ(Stream(*tokenizer, broken),
            (std::vector<std::string>{"", "", "\uFFFD\uFFFDw", "", "", "\uFFFD\uFFFD"}));
  const auto mixed = IdsOf(source, {"<0xE4>", "<0xC3>", "<0xA9>"});
  EXPECT_EQ(Stream(*tokenizer, mixed), (std::vector<std::string>{"", "\uFFFD", "\u00e9", ""}));
}

// As `tokenizers`: one broken byte breaks the whole run, so the run waits for its end.
TEST(SentencePieceDetokenizer, RunsThatBreakWholeWaitForTheirEnd) {
  VocabSource source = WordVocabulary();
  source.decoding.runs_break_whole = true;
  const auto tokenizer = Build(source);
  EXPECT_EQ(Stream(*tokenizer, IdsOf(source, {"<0xC3>", "<0xA9>", "w"})),
            (std::vector<std::string>{"", "", "\u00e9w", ""}));
  EXPECT_EQ(Stream(*tokenizer, IdsOf(source, {"<0xC3>", "<0xA9>", "<0xC3>", "w"})),
            (std::vector<std::string>{"", "", "", "\uFFFD\uFFFD\uFFFDw", ""}));
}

TEST(SentencePiece, EncodeThenDecodeGivesTheTextBack) {
  const VocabSource source = WordVocabulary();
  const auto tokenizer = Build(source);
  for (const std::string text : {"", "word", " word", "a  b\n\tc ", "\u00e9\U0001F600", "  "}) {
    const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/false);
    EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/true), text);
  }
}

}  // namespace
}  // namespace spry
