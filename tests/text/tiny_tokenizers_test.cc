// Made-up small tokenizers with every kind of step and flag, against what the `tokenizers` library
// does with them. tools/tokenizer_goldens.py --tiny writes the cases.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace spry {
namespace {

std::vector<TokenId> ToIds(simdjson::dom::array array) {
  std::vector<TokenId> ids;
  for (const int64_t id : array) ids.emplace_back(static_cast<int32_t>(id));
  return ids;
}

std::string Show(const std::vector<TokenId>& ids) {
  std::string shown;
  for (const TokenId id : ids) shown += fmt::format("{} ", id.value());
  return shown;
}

void CheckCase(const Tokenizer& tokenizer, const simdjson::dom::element& line, size_t i) {
  const auto at = [&](const char* key) { return line[key].at(i).value(); };
  const std::string_view text = at("texts");
  const std::vector<TokenId> ids = ToIds(at("ids"));
  EXPECT_EQ(Show(tokenizer.Encode(text, /*add_special_tokens=*/false)), Show(ids)) << text;
  EXPECT_EQ(Show(tokenizer.Encode(text, /*add_special_tokens=*/true)), Show(ToIds(at("whole_ids"))))
      << text;
  for (const bool skip : {false, true}) {
    const std::string_view decoded = at(skip ? "decoded_skipping" : "decoded");
    EXPECT_EQ(tokenizer.Decode(ids, skip), decoded);
    Detokenizer detokenizer(tokenizer, skip);
    std::string joined;
    for (const TokenId id : ids) detokenizer.Append(id, joined);
    detokenizer.Finish(joined);
    EXPECT_EQ(joined, decoded);
  }
}

void CheckFile(const std::string& name) {
  std::ifstream file(SPRY_SOURCE_DIR "/tests/golden/text/" + name);
  int tokenizers = 0;
  for (std::string text; std::getline(file, text); ++tokenizers) {
    simdjson::dom::parser parser;
    const simdjson::dom::element line = parser.parse(text);
    const std::string json = simdjson::minify(line["tokenizer"].value());
    SCOPED_TRACE(
        fmt::format("line {}: {}", tokenizers + 1, json.substr(json.find("\"added"), 900)));
    const TemporaryFolder folder;
    folder.Write("tokenizer.json", json);
    const auto source = ReadTokenizerFiles(folder.path());
    ASSERT_TRUE(source.ok()) << source.status().message();
    const auto tokenizer = Tokenizer::Create(**source);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const size_t texts = line["texts"].get_array().size();
    for (size_t i = 0; i < texts; ++i) CheckCase(**tokenizer, line, i);
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GE(tokenizers, 100);
}

TEST(TinyTokenizers, EncodeAndDecodeAsTheReference) { CheckFile("tiny_tokenizers.jsonl"); }

// BPE and Unigram over characters, with Metaspace, byte fallback and the like.
TEST(TinyTokenizers, SoDoPlainOnes) { CheckFile("tiny_plain_tokenizers.jsonl"); }

}  // namespace
}  // namespace spry
