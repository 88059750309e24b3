#include "text/unigram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "tests/text/tiny_files.h"
#include "tests/text/tiny_sentencepiece.h"
#include "tests/text/tiny_vocabulary.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer_files.h"

namespace spry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Pieces with scores as the model of a tokenizer.json, without steps around it.
VocabSource PlainUnigram(const std::vector<TinyPiece>& pieces) {
  VocabSource source;
  source.model = VocabSource::Model::kUnigram;
  source.pieces.push_back("<unk>");
  source.scores.push_back(0);
  source.unknown = TokenId(0);
  for (const TinyPiece& piece : pieces) {
    source.pieces.push_back(piece.text);
    source.scores.push_back(piece.score);
  }
  return source;
}

std::vector<std::string> Pieces(const VocabSource& source, std::string_view text) {
  std::vector<std::string> pieces;
  for (const TokenId id : Build(source)->Encode(text, /*add_special_tokens=*/false)) {
    pieces.push_back(source.pieces[id.value()]);
  }
  return pieces;
}

TEST(Unigram, TheBestSumWinsNotTheLongestPiece) {
  const VocabSource source =
      PlainUnigram({{"a", -2}, {"b", -2}, {"ab", -3}, {"abc", -9}, {"c", -1}, {"bc", -1.5f}});
  EXPECT_THAT(Pieces(source, "abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(Pieces(source, "abab"), ElementsAre("ab", "ab"));
}

// Of equal sums the one found first stays: the one whose last piece starts first.
TEST(Unigram, EqualSumsKeepTheFirst) {
  const VocabSource source = PlainUnigram({{"a", -1}, {"aa", -2}, {"aaa", -3}});
  EXPECT_THAT(Pieces(source, "aaa"), ElementsAre("aaa"));
}

TEST(Unigram, UnknownCharactersAreOneTokenARun) {
  const VocabSource source = PlainUnigram({{"a", -1}, {"b", -1}});
  EXPECT_THAT(Pieces(source, "axyb"), ElementsAre("a", "<unk>", "b"));
  EXPECT_THAT(Pieces(source, "\u00e9a\u00e9"), ElementsAre("<unk>", "a", "<unk>"));
}

// B008: a character without a piece falls back to its bytes, not to the unknown token.
TEST(Unigram, ByteFallbackComesBeforeTheUnknownToken) {
  const TemporaryFolder folder;
  std::string vocab = R"([["<unk>", 0.0], ["a", -1.0], ["b", -1.0])";
  for (const TinyPiece& piece : TinyPieces({}, /*with_bytes=*/true)) {
    if (piece.type == PieceType::kByte) vocab += fmt::format(R"(, ["{}", 0.0])", piece.text);
  }
  folder.Write("tokenizer.json",
               R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": null,
      "post_processor": null, "decoder": {"type": "Sequence", "decoders":
      [{"type": "ByteFallback"}, {"type": "Fuse"}]}, "model": {"type": "Unigram", "unk_id": 0,
      "byte_fallback": true, "vocab": )" +
                   vocab + "]}}");
  const auto source = ReadTokenizerFiles(folder.path());
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_THAT(Pieces(**source, "a\nb"), ElementsAre("a", "<0x0A>", "b"));
  const auto tokenizer = Build(**source);
  for (const std::string text : {"a\nb", "\u00e9\U0001F600", "<0x40>"}) {
    const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/false);
    EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/true), text);  // B010 for the last
  }
}

TEST(Unigram, RefusesWhatItCannotUse) {
  VocabSource source = PlainUnigram({{"a", -1}});
  source.scores[1] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Tokenizer::Create(source).status().message(), HasSubstr("score of token 1 is inf"));
  source = PlainUnigram({{std::string(5'000, 'a'), -1}});
  EXPECT_THAT(Tokenizer::Create(source).status().message(), HasSubstr("token 1 has 5000 bytes"));
  source = PlainUnigram({{"a", -1}});
  source.unknown.reset();
  EXPECT_THAT(Tokenizer::Create(source).status().message(), HasSubstr("neither an unknown token"));
}

std::string JsonError(std::string model) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json",
               R"({"decoder": {"type": "Fuse"}, "model": {"type": "Unigram", )" + model + "}}");
  const auto source = ReadTokenizerFiles(folder.path());
  return source.ok() ? "no error" : source.status().message();
}

TEST(Unigram, MalformedFilesAreNamedWithTheField) {
  EXPECT_THAT(JsonError(R"("vocab": {"a": 0})"), HasSubstr("model.vocab is an object"));
  EXPECT_THAT(JsonError(R"("vocab": [["a", 0], ["b"]])"), HasSubstr("model.vocab[1] is no piece"));
  EXPECT_THAT(JsonError(R"("vocab": [["a", "0"]])"), HasSubstr("model.vocab[0] is no piece"));
  EXPECT_THAT(JsonError(R"("vocab": [["a", 0]], "unk_id": 1)"),
              HasSubstr("model.unk_id is 1, but the vocabulary has 1 tokens"));
}

TEST(Unigram, AMegabyteOfOneCharacterIsFast) {
  std::vector<TinyPiece> pieces;
  for (int length = 1; length <= 64; ++length) {
    pieces.push_back({std::string(length, 'a'), -3 - static_cast<float>(length) / 10});
  }
  VocabSource source = PlainUnigram(pieces);
  const auto tokenizer = Build(source);
  const auto begin = std::chrono::steady_clock::now();
  const std::string text(1 << 20, 'a');
  const auto ids = tokenizer->Encode(text, /*add_special_tokens=*/false);
  EXPECT_EQ(ids.size(), (1u << 20) / 64);
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/true), text);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// SentencePiece's own Unigram, with a user-defined piece that beats better scores.
TEST(Unigram, SentencePieceFile) {
  const auto pieces = TinyPieces({{"a", -1},
                                  {"b", -1},
                                  {"\u2581", -1},
                                  {"\u2581a", -1.5f},
                                  {"ab", -50, PieceType::kUserDefined}},
                                 /*with_bytes=*/false);
  const auto source = ParseSentencePieceModel("tokenizer.model",
                                              TinyModel(pieces, ProtobufField(3, uint64_t{1}), ""));
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_THAT(Pieces(*source, " a  ab\u00e9"), ElementsAre("\u2581a", "\u2581", "ab", "<unk>"));
  const auto tokenizer = Build(*source);
  const auto ids = tokenizer->Encode("a ab", /*add_special_tokens=*/false);
  EXPECT_EQ(tokenizer->Decode(ids, /*skip_special_tokens=*/true), "a ab");
}

}  // namespace
}  // namespace spry
