#include "text/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/support/temporary_folder.h"
#include "tests/text/tiny_sentencepiece.h"
#include "tests/text/tiny_vocabulary.h"
#include "text/tokenizer_files.h"

namespace spry {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kTrainerModelType = 3;
constexpr uint64_t kBpe = 2;

std::string BpeModel() {
  const std::vector<TinyPiece> pieces =
      TinyPieces({{"a", -2}, {"b", -2}, {"ab", -1}, {"\u2581", -3}}, /*with_bytes=*/true);
  return TinyModel(pieces, ProtobufField(kTrainerModelType, kBpe), ProtobufField(4, uint64_t{0}));
}

std::string ErrorOf(std::string_view bytes) {
  const auto source = ParseSentencePieceModel("tokenizer.model", bytes);
  return source.ok() ? "no error" : source.status().message();
}

TEST(SentencePieceModel, IsReadFromAFolder) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.model", BpeModel());
  auto source = ReadTokenizerFiles(folder.path());
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ((*source)->bos, TokenId(1));
  EXPECT_EQ((*source)->eos, TokenId(2));
  EXPECT_EQ(Build(**source)->Encode("ab</s>", /*add_special_tokens=*/true),
            (std::vector{TokenId(1), TokenId(6), TokenId(5), TokenId(2)}));
  folder.Write("tokenizer_config.json",
               R"({"add_bos_token": false, "add_eos_token": true, "legacy": false,
      "eos_token": "</s>",
      "added_tokens_decoder": {"2": {"content": "</s>", "special": true, "rstrip": true}}})");
  folder.Write("added_tokens.json", R"({"<|im_start|>": 263})");
  source = ReadTokenizerFiles(folder.path());
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_FALSE((*source)->sentence_piece.prefix_after_special);
  EXPECT_EQ(Build(**source)->Encode("<|im_start|>ab</s>  a", /*add_special_tokens=*/true),
            (std::vector{TokenId(263), TokenId(5), TokenId(2), TokenId(3), TokenId(2)}));
}

TEST(SentencePieceModel, WhatIsNotSupportedIsNamed) {
  const auto pieces = TinyPieces({{"a", 0}}, /*with_bytes=*/false);
  EXPECT_THAT(ErrorOf(TinyModel(pieces, ProtobufField(kTrainerModelType, uint64_t{4}), "")),
              HasSubstr("tokenizer.model: model_type is 4 (character); supported: "));
}

TEST(SentencePieceModel, BrokenFilesAreNamedWithTheByte) {
  const std::string good = BpeModel();
  EXPECT_THAT(ErrorOf(""), HasSubstr("tokenizer.model: byte 0: the file ends without a piece"));
  EXPECT_THAT(ErrorOf("\x0a"), HasSubstr("byte 1: a number runs past the end"));
  EXPECT_THAT(ErrorOf("\x0a\x7f"
                      "a"),
              HasSubstr("byte 0: field 1 has 127 bytes"));
  EXPECT_THAT(ErrorOf(std::string(12, '\xFF')), HasSubstr("a number has more than 10 bytes"));
  EXPECT_THAT(ErrorOf("\x02"), HasSubstr("byte 0: field number 0"));
  EXPECT_THAT(ErrorOf("\x0b"), HasSubstr("byte 0: field 1 has wire type 3"));
  EXPECT_THAT(ErrorOf(ProtobufField(1, uint64_t{5})), HasSubstr("byte 1: field 1 has wire type 0"));
  EXPECT_THAT(ErrorOf(ProtobufField(1, "")), HasSubstr("byte 2: a piece has no text"));
  EXPECT_THAT(ErrorOf(ProtobufField(1, ProtobufField(1, "\xC3("))),
              HasSubstr("byte 4: a piece is not UTF-8"));
  EXPECT_THAT(ErrorOf(PieceMessage({"a", 0, PieceType(9)})), HasSubstr("a piece has type 9"));
  EXPECT_THAT(ErrorOf(PieceMessage({"<0xZZ>", 0, PieceType::kByte}) +
                      ProtobufField(2, ProtobufField(kTrainerModelType, kBpe))),
              HasSubstr("token 0 is a byte piece but not spelled"));
  for (size_t size = 1; size < good.size(); size += 7) {
    const auto source = ParseSentencePieceModel("tokenizer.model", good.substr(0, size));
    if (source.ok()) continue;
    EXPECT_THAT(source.status().message(), StartsWith("tokenizer.model: "));
  }
}

// Whatever is in the file, it is a vocabulary or an error.
TEST(SentencePieceModel, MutationsAreHarmless) {
  const std::string good = BpeModel();
  std::mt19937 random(17);
  int read = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string bytes = good;
    for (uint32_t i = 1 + random() % 3; i > 0; --i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const auto source = ParseSentencePieceModel("tokenizer.model", bytes);
    if (!source.ok()) continue;
    const auto tokenizer = Tokenizer::Create(*source);
    if (!tokenizer.ok()) continue;
    ++read;
    (*tokenizer)
        ->Decode((*tokenizer)->Encode("ab <s> \u00e9", /*add_special_tokens=*/false),
                 /*skip_special_tokens=*/false);
  }
  EXPECT_GT(read, 100);
  EXPECT_LT(read, 2'900);
}

}  // namespace
}  // namespace spry
