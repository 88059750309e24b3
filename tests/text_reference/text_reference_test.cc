// Ids and decoded text equal to those of the `tokenizers` library, for whole vocabularies, on 2 MB
// of mixed text and 100,000 random strings. tools/tokenizer_goldens.py makes the data.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "text/detokenizer.h"
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

Path DataFolder() { return Path(SPRY_SOURCE_DIR) / "build" / "test-data" / "tokenizers"; }

// A file of records: a little-endian uint32 count, then so many elements.
class Records {
 public:
  explicit Records(const Path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream stream;
    stream << file.rdbuf();
    data_ = stream.str();
  }

  bool done() const { return at_ >= data_.size(); }

  std::string_view Text() {
    const size_t count = Count();
    at_ += count;
    return std::string_view(data_).substr(at_ - count, count);
  }

  std::vector<TokenId> Ids() {
    std::vector<TokenId> ids(Count());
    for (TokenId& id : ids) {
      int32_t value = 0;
      std::memcpy(&value, data_.data() + at_, sizeof value);
      at_ += sizeof value;
      id = TokenId(value);
    }
    return ids;
  }

 private:
  size_t Count() {
    uint32_t count = 0;
    if (at_ + sizeof count <= data_.size()) std::memcpy(&count, data_.data() + at_, sizeof count);
    at_ += sizeof count;
    return count;
  }

  std::string data_;
  size_t at_ = 0;
};

std::string Show(const std::vector<TokenId>& ids, size_t from) {
  std::string shown;
  for (size_t i = from; i < ids.size() && i < from + 8; ++i) {
    shown += fmt::format(" {}", ids[i].value());
  }
  return shown;
}

// Where two id sequences part, and the text from there on.
std::string Difference(const Tokenizer& tokenizer, std::string_view text,
                       const std::vector<TokenId>& got, const std::vector<TokenId>& want) {
  size_t same = 0;
  while (same < got.size() && same < want.size() && got[same] == want[same]) ++same;
  size_t bytes = 0;
  for (size_t i = 0; i < same; ++i) bytes += tokenizer.TokenBytes(got[i]).size();
  std::string shown;
  for (const char c : text.substr(std::min(bytes, text.size()), 40)) {
    shown += fmt::format("{:02x} ", static_cast<unsigned char>(c));
  }
  return fmt::format("token {}: got{}, want{}; text there: {}", same, Show(got, same),
                     Show(want, same), shown);
}

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

  // Counts the texts that come out different and shows the first of them.
  void ExpectSameIds(const Tokenizer& tokenizer, const Path& texts_file, const Path& ids_file) {
    Records texts(texts_file);
    Records ids(ids_file);
    int total = 0;
    int different = 0;
    for (; !texts.done() && !ids.done(); ++total) {
      const std::string_view text = texts.Text();
      const std::vector<TokenId> want = ids.Ids();
      const std::vector<TokenId> got = tokenizer.Encode(text, /*add_special_tokens=*/false);
      if (got == want) continue;
      if (++different <= 5) ADD_FAILURE() << Difference(tokenizer, text, got, want);
    }
    EXPECT_EQ(different, 0) << "of " << total;
    EXPECT_TRUE(texts.done() && total > 0);
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
  source.nfc = source.ignore_merges = false;
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

TEST_P(ReferenceTest, DecodesRandomIds) {
  Records records(folder() / "decoded.bin");
  int total = 0;
  for (; !records.done(); ++total) {
    const std::vector<TokenId> ids = records.Ids();
    for (const bool skip : {false, true}) {
      const std::string_view want = records.Text();
      EXPECT_EQ(tokenizer_->Decode(ids, skip), want);
      Detokenizer detokenizer(*tokenizer_, skip);
      std::string joined;
      for (const TokenId id : ids) detokenizer.Append(id, joined);
      detokenizer.Finish(joined);
      EXPECT_EQ(joined, want);
    }
  }
  EXPECT_GT(total, 1000);
}

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
