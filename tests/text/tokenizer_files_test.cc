#include "text/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.h"
#include "tests/text/tiny_files.h"
#include "text/tokenizer.h"

namespace spry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

VocabSource Read(const TemporaryFolder& folder) {
  auto source = ReadTokenizerFiles(folder.path());
  EXPECT_TRUE(source.ok()) << source.status().message();
  if (!source.ok() || !source->has_value()) return ByteVocabulary();
  return **source;
}

std::string ErrorOf(const TemporaryFolder& folder) {
  const auto source = ReadTokenizerFiles(folder.path());
  return source.ok() ? "no error" : source.status().message();
}

std::string ErrorOf(const TinyTokenizer& tiny) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", TinyTokenizerJson(tiny));
  return ErrorOf(folder);
}

VocabSource Read(const TinyTokenizer& tiny) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", TinyTokenizerJson(tiny));
  return Read(folder);
}

TEST(TokenizerFiles, NothingInAnEmptyFolder) {
  const TemporaryFolder folder;
  const auto source = ReadTokenizerFiles(folder.path());
  ASSERT_TRUE(source.ok());
  EXPECT_FALSE(source->has_value());
  EXPECT_FALSE(ReadTokenizerFiles(folder.path() / "missing")->has_value());
}

TEST(TokenizerFiles, ReadsTokenizerJson) {
  const VocabSource source = Read(TinyTokenizer{});
  EXPECT_EQ(source.pieces.size(), 258u);
  ASSERT_EQ(source.added_tokens.size(), 1u);
  EXPECT_TRUE(source.added_tokens[0].special);
  EXPECT_FALSE(source.add_bos);
  EXPECT_EQ(Build(source)->Encode("ab<s>", /*add_special_tokens=*/true),
            (std::vector{TokenId(256), TokenId(257)}));
  TinyTokenizer words;
  words.merges = R"(["a b"])";
  EXPECT_EQ(Read(words).merges, source.merges);
}

TEST(TokenizerFiles, TemplateSaysWhatGoesAround) {
  TinyTokenizer tiny;
  tiny.post_processor = R"({"type": "Sequence", "processors": [{"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                  {"Sequence": {"id": "A", "type_id": 0}}],
       "special_tokens": {"<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]}}}]})";
  const VocabSource source = Read(tiny);
  EXPECT_TRUE(source.add_bos);
  EXPECT_FALSE(source.add_eos);
  EXPECT_EQ(source.bos, TokenId(257));
  EXPECT_EQ(Build(source)->Encode("ab", /*add_special_tokens=*/true),
            (std::vector{TokenId(257), TokenId(256)}));
}

TEST(TokenizerFiles, ReadsTheConfigs) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", TinyTokenizerJson(TinyTokenizer{}));
  folder.Write("tokenizer_config.json", R"({"bos_token": {"content": "<s>", "lstrip": false},
      "pad_token": "ab", "eos_token": null, "unk_token": "not there",
      "clean_up_tokenization_spaces": true, "add_bos_token": true,
      "chat_template": [{"name": "tool_use", "template": "T"},
                        {"name": "default", "template": "D"}]})");
  folder.Write("special_tokens_map.json", R"({"eos_token": "<s>", "bos_token": "a"})");
  VocabSource source = Read(folder);
  EXPECT_EQ(source.bos, TokenId(257));  // tokenizer_config.json comes first
  EXPECT_EQ(source.eos, TokenId(257));
  EXPECT_EQ(source.chat_template, "D");
  EXPECT_EQ(source.tool_use_template, "T");
  // Templates see the names as they stand, in the vocabulary or not.
  EXPECT_THAT(source.special_texts, testing::ElementsAre(testing::Pair("bos_token", "<s>"),
                                                         testing::Pair("eos_token", "<s>"),
                                                         testing::Pair("unk_token", "not there"),
                                                         testing::Pair("pad_token", "ab")));
  EXPECT_FALSE(source.add_bos);  // with a tokenizer.json its post_processor alone decides
  EXPECT_TRUE(Build(source)->IsSpecial(TokenId(256)));
  folder.Write("chat_template.jinja", "{{ bos_token }}");
  EXPECT_EQ(Read(folder).chat_template, "{{ bos_token }}");
  EXPECT_EQ(Read(folder).tool_use_template, "");
  std::filesystem::create_directory(folder.path() / "additional_chat_templates");
  folder.Write("additional_chat_templates/tool_use.jinja", "{{ tools }}");
  EXPECT_EQ(Read(folder).tool_use_template, "{{ tools }}");
}

// OPT: bos is "</s>", put in front because the config says so.
TEST(TokenizerFiles, ReadsVocabAndMerges) {
  const TemporaryFolder folder;
  std::string vocab = TinyVocabJson();
  vocab.insert(vocab.size() - 1, R"(, "</s>": 258)");
  folder.Write("vocab.json", vocab);
  folder.Write("merges.txt", "#version: 0.2\na b\r\n");
  EXPECT_EQ(Build(Read(folder))->Encode("ab 12", /*add_special_tokens=*/true).size(), 4u);
  folder.Write("tokenizer_config.json", R"({"bos_token": {"content": "</s>", "normalized": true},
      "eos_token": "</s>", "add_bos_token": true, "added_tokens_decoder": {
      "259": {"content": "<tool>", "special": false, "lstrip": true}}})");
  const VocabSource source = Read(folder);
  EXPECT_TRUE(source.add_bos);
  EXPECT_EQ(source.bos, TokenId(258));
  EXPECT_EQ(source.eos, TokenId(258));
  EXPECT_EQ(Build(source)->Encode("ab <tool></s>", /*add_special_tokens=*/true),
            (std::vector{TokenId(258), TokenId(256), TokenId(259), TokenId(258)}));
}

TEST(TokenizerFiles, Gpt2WithoutConfigsHasItsEndOfText) {
  const TemporaryFolder folder;
  std::string vocab = TinyVocabJson();
  vocab.insert(vocab.size() - 1, R"(, "<|endoftext|>": 258)");
  folder.Write("vocab.json", vocab);
  folder.Write("merges.txt", "");
  const VocabSource source = Read(folder);
  EXPECT_EQ(source.eos, TokenId(258));
  EXPECT_FALSE(source.add_bos);
  EXPECT_EQ(Build(source)->Encode("<|endoftext|>", /*add_special_tokens=*/true),
            std::vector{TokenId(258)});
}

TEST(TokenizerFiles, RefusesUnsupportedPartsByName) {
  struct Case {
    TinyTokenizer tiny;
    std::string field;
    std::string found;
  };
  std::vector<Case> cases;
  const auto add = [&](auto change, std::string field, std::string found) {
    TinyTokenizer tiny;
    change(tiny);
    cases.push_back({tiny, field, found});
  };
  add([](auto& t) { t.model_type = R"("WordPiece")"; }, "model.type", "is \"WordPiece\"");
  add([](auto& t) { t.model_extra = R"("dropout": 0.1,)"; }, "model.dropout", "is set");
  add([](auto& t) { t.model_extra = R"("end_of_word_suffix": "</w>",)"; },
      "model.end_of_word_suffix", "\"</w>\"");
  add([](auto& t) { t.normalizer = R"({"type": "Lowercase"})"; }, "normalizer.type",
      "\"Lowercase\"; supported: NFC");
  add([](auto& t) { t.pre_tokenizer = R"({"type": "BertPreTokenizer"})"; }, "pre_tokenizer.type",
      "\"BertPreTokenizer\"; supported: ByteLevel, Metaspace");
  add([](auto& t) { t.pre_tokenizer = R"({"type": "Metaspace", "replacement": "_"})"; },
      "pre_tokenizer.replacement", "is \"_\"");
  add([](auto& t) { t.pre_tokenizer = "null"; }, "pre_tokenizer", "has no ByteLevel");
  add(
      [](auto& t) {
        t.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "MergedWithNext",
             "invert": true},
            {"type": "ByteLevel"}]})";
      },
      "pre_tokenizer.pretokenizers[0].behavior", "\"MergedWithNext\"");
  add([](auto& t) { t.post_processor = R"({"type": "BertProcessing"})"; }, "post_processor.type",
      "\"BertProcessing\"");
  add([](auto& t) { t.decoder = "null"; }, "decoder", "is missing");
  add([](auto& t) { t.decoder = R"({"type": "WordPiece"})"; }, "decoder.type", "\"WordPiece\"");
  add(
      [](auto& t) {
        t.pre_tokenizer = R"({"type": "Metaspace"})";
        t.decoder = R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})";
      },
      "decoder.type", "is \"Strip\"; supported: ByteLevel, or in this order Replace");
  add(
      [](auto& t) {
        t.pre_tokenizer = "null";
        t.decoder = R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 2, "stop": 0}]})";
      },
      "decoder.decoders[1].content", "start 2 and stop 0; supported: one space in front");
  for (const Case& c : cases) {
    const TemporaryFolder folder;
    folder.Write("tokenizer.json", TinyTokenizerJson(c.tiny));
    const auto source = ReadTokenizerFiles(folder.path());
    EXPECT_EQ(source.status().code(), StatusCode::kUnimplemented) << c.field;
    EXPECT_THAT(source.status().message(),
                AllOf(HasSubstr("tokenizer.json: " + c.field + " "), HasSubstr(c.found)));
  }
}

TEST(TokenizerFiles, MalformedFilesAreNamedWithTheField) {
  TinyTokenizer tiny;
  tiny.vocab = R"({"a": 4000000000})";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("tokenizer.json: model.vocab.a is 4000000000"));
  tiny.vocab = R"({"a": 2000000000})";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("there are only 1 tokens"));
  tiny.vocab = R"({"a": -1})";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("model.vocab.a is -1"));
  tiny.vocab = R"({"a": "0"})";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("model.vocab.a is a string; expected a token id"));
  tiny.vocab = R"({"a": 0, "b": 0})";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("model.vocab.b has id 0, which \"a\" has too"));
  tiny.vocab = "[]";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("model.vocab is an array; expected an object"));
  tiny = TinyTokenizer{};
  tiny.merges = R"(["a b", "a b c"])";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("model.merges[1] is no merge"));
  tiny.merges = R"([["a"]])";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("model.merges[0] is no merge"));
  tiny = TinyTokenizer{};
  tiny.added_tokens = R"([{"id": 2000000000, "content": "<x>"}])";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("added_tokens[0].content: \"<x>\" has id 2000000000"));
  tiny.added_tokens = R"([{"id": 5, "content": "<x>"}])";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("but the vocabulary has"));
  tiny.added_tokens = R"([{"content": "<x>"}])";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("added_tokens[0].id is missing"));
  tiny.added_tokens = R"([7])";
  EXPECT_THAT(ErrorOf(tiny), HasSubstr("added_tokens[0] is a number; expected an object"));
}

TEST(TokenizerFiles, BrokenJsonIsNamed) {
  const TemporaryFolder folder;
  for (const std::string text : {"", "{", "[]", "{\"model\": \"\\ud800\"}", "{\"a\": \"\xC3(\"}"}) {
    folder.Write("tokenizer.json", text);
    EXPECT_THAT(ErrorOf(folder), HasSubstr("tokenizer.json: "));
  }
  folder.Write("tokenizer.json", TinyTokenizerJson(TinyTokenizer{}));
  folder.Write("tokenizer_config.json", "{\"bos_token\": 5}");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("tokenizer_config.json: bos_token is a number"));
  folder.Write("tokenizer_config.json", "nonsense");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("tokenizer_config.json: not JSON"));
}

TEST(TokenizerFiles, BrokenMergesAreNamedByLine) {
  const TemporaryFolder folder;
  folder.Write("vocab.json", TinyVocabJson());
  folder.Write("merges.txt", "#version: 0.2\na b\nab\n");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("merges.txt: line 3 is no merge"));
  folder.Write("merges.txt", "");
  folder.Write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<none>"})");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("add_bos_token is true, but bos_token is missing"));
  folder.Write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "y"}}})");
  EXPECT_THAT(ErrorOf(folder), HasSubstr("added_tokens_decoder.x is no token id"));
}

}  // namespace
}  // namespace spry
