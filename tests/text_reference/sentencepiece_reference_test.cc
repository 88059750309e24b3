// The same for vocabularies of SentencePiece's kind, from tokenizer.model, tokenizer.json and GGUF,
// against the `sentencepiece` and `tokenizers` libraries and llama.cpp's cases.
// tools/sentencepiece_goldens.py makes the data.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/gguf.h"
#include "checkpoint/gguf_vocab.h"
#include "tests/text_reference/reference_data.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace spry {
namespace {

using Path = std::filesystem::path;

enum class Reference { kSentencePiece, kTokenizers };

struct Vocabulary {
  const char* name;
  Reference reference;
  bool gguf = false;  // read from source/NAME.gguf, not from the folder
};

constexpr Vocabulary kVocabularies[] = {
    {"llama-spm", Reference::kSentencePiece, true},
    {"phi-3", Reference::kSentencePiece, true},
    {"baichuan", Reference::kSentencePiece, true},
    {"gemma-4", Reference::kTokenizers, true},
    {"gemma-4", Reference::kTokenizers},
    {"llama-spm-model", Reference::kSentencePiece},
    {"llama-spm-prepend", Reference::kTokenizers},
    {"llama-spm-first", Reference::kTokenizers},
    {"llama-spm-always", Reference::kTokenizers},
    {"llama-spm-never", Reference::kTokenizers},
    {"trained-bpe", Reference::kSentencePiece},
    {"trained-bpe-unknown", Reference::kSentencePiece},
    {"trained-bpe-trimmed", Reference::kSentencePiece},
    {"trained-bpe-suffix", Reference::kSentencePiece},
    {"trained-bpe-nfkc", Reference::kSentencePiece},
    {"nomic-bert-moe", Reference::kSentencePiece, true},
    {"nomic-bert-moe-words", Reference::kTokenizers},
    {"nomic-bert-moe-text", Reference::kTokenizers},
    {"trained-unigram", Reference::kSentencePiece},
    {"trained-unigram-bytes", Reference::kSentencePiece},
    {"trained-unigram-bytes-json", Reference::kTokenizers},
    {"trained-unigram-folded", Reference::kSentencePiece},
};

Result<VocabSource> ReadSource(const Vocabulary& vocabulary) {
  if (vocabulary.gguf) {
    const Path path = DataFolder() / "source" / (std::string(vocabulary.name) + ".gguf");
    SPRY_ASSIGN_OR_RETURN(const GgufFile file, ReadGguf(path));
    return GgufVocab(file.metadata);
  }
  SPRY_ASSIGN_OR_RETURN(const auto source, ReadTokenizerFiles(DataFolder() / vocabulary.name));
  if (!source) return NotFound("no vocabulary; make it with tools/tokenizer_goldens.py");
  return *source;
}

class SentencePieceReferenceTest : public testing::TestWithParam<Vocabulary> {
 protected:
  Path folder() const { return DataFolder() / GetParam().name; }

  void SetUp() override {
    const auto source = ReadSource(GetParam());
    ASSERT_TRUE(source.ok()) << source.status().message();
    source_ = *source;
    tokenizer_ = Build(source_);
  }

  static std::unique_ptr<Tokenizer> Build(const VocabSource& source) {
    auto tokenizer = Tokenizer::Create(source);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
  }

  VocabSource source_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(SentencePieceReferenceTest, EncodesCorpusAndRandomStrings) {
  if (GetParam().reference == Reference::kSentencePiece) {
    // That library never takes a special token out of a text.
    for (AddedToken& token : source_.added_tokens) {
      if (token.special) token.content.clear();
    }
  }
  ExpectSameIds(*Build(source_), DataFolder() / "texts.bin", folder() / "ids.bin");
}

TEST_P(SentencePieceReferenceTest, EncodesTheCasesThatComeWithTheVocabulary) {
  if (!std::filesystem::exists(folder() / "cases.bin")) return;  // none come with this one
  ExpectSameIds(*tokenizer_, folder() / "cases.bin", folder() / "case_ids.bin");
}

TEST_P(SentencePieceReferenceTest, DecodesRandomIds) {
  ExpectSameTexts(*tokenizer_, folder() / "decoded.bin");
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, SentencePieceReferenceTest, testing::ValuesIn(kVocabularies),
                         [](const auto& parameter) {
                           std::string name = parameter.param.name;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name + (parameter.param.gguf ? "_gguf" : "");
                         });

}  // namespace
}  // namespace spry
