// The vocabularies of llama.cpp's ggml-vocab files, read from the GGUF as a model is, on the texts
// and ids that come beside them (NAME.inp, NAME.out).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_vocab.h"
#include "tests/text_reference/reference_data.h"
#include "text/tokenizer.h"

namespace spry {
namespace {

class GgufCasesTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufCasesTest, IdsAreThoseOfTheCases) {
  const std::string name = GetParam();
  const auto file = ReadGguf(DataFolder() / "source" / (name + ".gguf"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto source = GgufVocab(file->metadata);
  ASSERT_TRUE(source.ok()) << source.status().message();
  const auto tokenizer = Tokenizer::Create(*source);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  ExpectSameIds(**tokenizer, DataFolder() / name / "cases.bin",
                DataFolder() / name / "case_ids.bin");
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GgufCasesTest,
                         testing::Values("command-r", "deepseek-coder", "deepseek-llm", "falcon",
                                         "gemma-4", "gpt-2", "llama-bpe", "llama-spm", "mpt",
                                         "phi-3", "qwen2", "qwen35", "refact", "starcoder"),
                         [](const auto& parameter) {
                           std::string name = parameter.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace spry
