// Ids and decoded text equal to those of the `tokenizers` library, for whole vocabularies, on 2 MB
// of mixed text and 100,000 random strings, or as many of them as tools/tokenizer_goldens.py was
// asked for, which makes the data.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/text_reference/reference_data.h"
#include "text/pre_tokenizers.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace spry {
namespace {

using Path = std::filesystem::path;

// The vocabularies that the script makes. A list here, not what lies in the folder, so that one
// that was not made is seen.
constexpr const char* kVocabularies[] = {
    "aquila", "bloom",       "command-r", "dbrx",      "deepseek-coder", "deepseek-llm", "falcon",
    "gpt-2",  "deepseek-v3", "gpt-4o",    "gpt-neox",  "llama-bpe",      "mpt",          "qwen2",
    "qwen35", "refact",      "smollm",    "starcoder", "tekken"};

class ReferenceTest : public testing::TestWithParam<const char*> {
 protected:
  Path folder() const { return DataFolder() / GetParam(); }

  void SetUp() override {
    if (!std::filesystem::exists(folder() / "ids.bin")) {
      FAIL() << "no data in " << folder() << "; make it with tools/tokenizer_goldens.py";
    }
    auto source = ReadTokenizerFiles(folder());
    ASSERT_TRUE(source.ok()) << source.status().message();
    ASSERT_TRUE(source->has_value());
    source_ = **source;
    auto tokenizer = Tokenizer::Create(source_);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = *std::move(tokenizer);
  }

  VocabSource source_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(ReferenceTest, EncodesCorpusAndRandomStrings) {
  ExpectSameIds(*tokenizer_, DataFolder() / "texts.bin", folder() / "ids.bin");
}

TEST_P(ReferenceTest, PreTokenizerOfThatNameGivesTheSame) {
  std::ifstream file(folder() / "pre.txt");
  std::string name;
  file >> name;
  VocabSource source = source_;
  source.ignore_merges = false;
  const Status status = ApplyPreTokenizer(name, source);
  ASSERT_TRUE(status.ok()) << status.message();
  auto tokenizer = Tokenizer::Create(source);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  ExpectSameIds(**tokenizer, DataFolder() / "texts.bin", folder() / "ids.bin");
}

TEST_P(ReferenceTest, EncodesTheCasesThatComeWithTheVocabulary) {
  if (!std::filesystem::exists(folder() / "cases.bin")) return;  // none come with this one
  ExpectSameIds(*tokenizer_, folder() / "cases.bin", folder() / "case_ids.bin");
}

TEST_P(ReferenceTest, DecodesRandomIds) { ExpectSameTexts(*tokenizer_, folder() / "decoded.bin"); }

// Known ids from public reports: punctuation pairs and line ends, digits, no bos.
TEST(Qwen2Vocabulary, KnownIds) {
  const auto source = ReadTokenizerFiles(DataFolder() / "qwen2");
  ASSERT_TRUE(source.ok() && source->has_value()) << "make it with tools/tokenizer_goldens.py";
  const auto tokenizer = Tokenizer::Create(**source);
  ASSERT_TRUE(tokenizer.ok());
  const auto encode = [&](std::string_view text) {
    return (*tokenizer)->Encode(text, /*add_special_tokens=*/true);
  };
  EXPECT_EQ(encode("->"), std::vector{TokenId(405)});
  EXPECT_EQ(encode("(x):\n"), (std::vector{TokenId(2075), TokenId(982)}));
  EXPECT_EQ(encode("2024"), (std::vector{TokenId(17), TokenId(15), TokenId(17), TokenId(19)}));
  EXPECT_EQ(encode("Hi"), std::vector{TokenId(13048)});
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, ReferenceTest, testing::ValuesIn(kVocabularies),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace spry
