// SentencePiece's kinds of vocabulary in a GGUF file.
#include "checkpoint/gguf_vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/checkpoint/checkpoint_files.h"
#include "text/tokenizer.h"

namespace spry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kI32 = 5;
constexpr uint32_t kF32 = 6;
constexpr uint32_t kArray = 9;

struct TinyVocab {
  std::string model = "llama";
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab", "<x>"};
  std::vector<uint32_t> types = {2, 3, 3, 1, 1, 1, 1, 4};
  std::vector<float> scores = {0, 0, 0, -3, -2, -2, -1, 0};
  std::vector<std::pair<std::string, bool>> flags = {};

  std::string Bytes() const {
    const bool typed = !types.empty();
    const bool scored = !scores.empty();
    GgufBytes bytes;
    bytes.Head(0, 4 + typed + scored + flags.size());
    bytes.KeyText("tokenizer.ggml.model", model).KeyTexts("tokenizer.ggml.tokens", tokens);
    bytes.KeyU32("tokenizer.ggml.bos_token_id", 1).KeyU32("tokenizer.ggml.eos_token_id", 2);
    if (typed) {
      bytes.Text("tokenizer.ggml.token_type").U32(kArray).U32(kI32).U64(types.size());
      for (const uint32_t type : types) bytes.U32(type);
    }
    if (scored) {
      bytes.Text("tokenizer.ggml.scores").U32(kArray).U32(kF32).U64(scores.size());
      for (const float score : scores) bytes.F32(score);
    }
    for (const auto& [key, value] : flags) bytes.KeyBool("tokenizer.ggml." + key, value);
    return bytes.bytes();
  }
};

Result<VocabSource> Read(const TinyVocab& vocab) {
  const TemporaryFolder folder;
  SPRY_ASSIGN_OR_RETURN(const GgufFile file, ReadGguf(folder.Write("v.gguf", vocab.Bytes())));
  return GgufVocab(file.metadata);
}

std::vector<int> Ids(const TinyVocab& vocab, std::string_view text) {
  const auto source = Read(vocab);
  EXPECT_TRUE(source.ok()) << source.status().message();
  const auto tokenizer = Tokenizer::Create(*source);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::vector<int> ids;
  for (const TokenId id : (*tokenizer)->Encode(text, /*add_special_tokens=*/true)) {
    ids.push_back(id.value());
  }
  return ids;
}

TEST(GgufVocab, SentencePieceBpe) {
  EXPECT_THAT(Ids({}, "ab"), ElementsAre(1, 3, 6));
  EXPECT_THAT(Ids({}, "<s>ab<x>b"), ElementsAre(1, 1, 3, 6, 7, 5));
  EXPECT_THAT(Ids({.flags = {{"add_space_prefix", false}, {"add_bos_token", false}}}, "ab"),
              ElementsAre(6));
  EXPECT_THAT(Ids({.flags = {{"add_eos_token", true}}}, "b"), ElementsAre(1, 3, 5, 2));
  EXPECT_THAT(Ids({.flags = {{"remove_extra_whitespaces", true}}}, "  b  b "),
              ElementsAre(1, 3, 5, 3, 5));
}

TEST(GgufVocab, Unigram) {
  EXPECT_THAT(Ids({.model = "t5"}, "ab\u00e9"), ElementsAre(6, 0, 2));
  EXPECT_THAT(Ids({.model = "t5", .flags = {{"add_space_prefix", true}}}, "ab"),
              ElementsAre(3, 6, 2));
}

std::string ErrorOf(const TinyVocab& vocab) {
  const auto source = Read(vocab);
  if (!source.ok()) return source.status().message();
  const auto tokenizer = Tokenizer::Create(*source);
  return tokenizer.ok() ? "accepted" : tokenizer.status().message();
}

TEST(GgufVocab, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(ErrorOf({.model = "rwkv"}),
              HasSubstr("tokenizer.ggml.model 'rwkv', supported: 'gpt2', 'llama', 't5', 'gemma4'"));
  EXPECT_THAT(ErrorOf({.types = {}}), HasSubstr("\"tokenizer.ggml.token_type\" is missing"));
  EXPECT_THAT(ErrorOf({.scores = {}}), HasSubstr("\"tokenizer.ggml.scores\" is missing"));
  EXPECT_THAT(ErrorOf({.scores = {1, 2}}),
              HasSubstr("\"tokenizer.ggml.scores\" is an array of 2, expected one for each of"));
  EXPECT_THAT(ErrorOf({.types = {2, 3, 3, 1, 1, 1, 1, 9}}),
              HasSubstr("tokenizer.ggml.token_type: token 7 has type"));
  EXPECT_THAT(ErrorOf({.types = {2, 3, 3, 1, 1, 1, 6, 1}}),
              HasSubstr("token 6 is a byte piece but not spelled <0x00> to <0xFF>"));
  EXPECT_THAT(ErrorOf({.types = {1, 3, 3, 1, 1, 1, 1, 1}}), HasSubstr("neither an unknown token"));
  TinyVocab broken;
  broken.tokens[7] = "\xC3(";
  EXPECT_THAT(ErrorOf(broken), HasSubstr("added token 7 is not UTF-8"));
}

}  // namespace
}  // namespace spry
