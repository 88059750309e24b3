// Damaged tokenizer files: whatever is in them, reading gives a vocabulary or an error, never a
// crash or a great deal of memory.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "tests/support/temporary_folder.h"
#include "tests/text/tiny_files.h"
#include "text/tokenizer.h"
#include "text/tokenizer_files.h"

namespace spry {

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string operator()(std::string text) {
    for (uint32_t rounds = 1 + random_() % 4; rounds > 0; --rounds) Mutate(text);
    return text;
  }

 private:
  void Mutate(std::string& text) {
    constexpr const char* kValues[] = {"null",
                                       "-1",
                                       "4294967295",
                                       "1e308",
                                       "2147483647",
                                       "{}",
                                       "[]",
                                       "true",
                                       "\"\"",
                                       "99999999999999999999",
                                       "\"\\ud800\"",
                                       "\"\\u0000\"",
                                       "[[[[[[[[",
                                       "\"(\"",
                                       "65000",
                                       "\"Sequence\"",
                                       "\"ByteLevel\"",
                                       "\"Unigram\"",
                                       "\"Metaspace\"",
                                       "\"(a|aa)+$\"",
                                       "\xFF"};
    const size_t at = random_() % (text.size() + 1);
    const size_t length = std::min<size_t>(random_() % 20, text.size() - at);
    switch (random_() % 6) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, text.substr(at, length)); break;
      case 2: text.resize(at); break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random_());
        break;
      case 4: text.insert(at, kValues[random_() % std::size(kValues)]); break;
      default: ReplaceValue(text, at, kValues[random_() % std::size(kValues)]);
    }
  }

  // Puts `value` in the place of the value behind the next colon.
  static void ReplaceValue(std::string& text, size_t at, const char* value) {
    const size_t colon = text.find(": ", at);
    if (colon == std::string::npos) return;
    const size_t end = text.find_first_of(",}]", colon);
    text.replace(colon + 2, end - colon - 2, value);
  }

  std::mt19937 random_;
};

// A tokenizer.json of the kind that is not byte-level.
inline std::string PlainTokenizerJson(bool unigram) {
  const std::string model =
      unigram ? R"("Unigram", "unk_id": 0, "byte_fallback": true, "vocab": [["<unk>", 0.0],
      ["<s>", -1.5], ["a", -1.0], ["b", -2.5], ["ab", -1.5], ["\u2581", -1.0], ["<0xC3>", -9.0],
      ["abc", -3.0]])"
              : R"("BPE", "unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true,
      "vocab": {"<unk>": 0, "<s>": 1, "a": 2, "b": 3, "ab": 4, "\u2581": 5, "<0xC3>": 6},
      "merges": ["a b"])";
  return R"({"added_tokens": [{"id": 1, "content": "<s>", "special": true},
      {"id": 8, "content": "<x>", "normalized": true}],
      "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Precompiled", "precompiled_charsmap": "CAAAAAAEAAAAAAAAeA=="},
      {"type": "Strip", "strip_left": false, "strip_right": true},
      {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]},
      "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
      {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": true}]},
      "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": )" +
         model + "}}";
}

// Files that have something in each place that is read, one of them damaged.
inline void WriteFiles(const TemporaryFolder& folder, uint32_t seed) {
  Mutator mutate(seed);
  TinyTokenizer tiny;
  tiny.vocab = R"({"a": 0, "b": 1, "c": 2, "ab": 3, "\u0120": 4, "<s>": 5, "abc": 6})";
  tiny.merges = R"([["a", "b"], "ab c"])";
  tiny.added_tokens = R"([{"id": 5, "content": "<s>", "special": true, "lstrip": true},
      {"id": 7, "content": "<x>", "single_word": true, "normalized": true}])";
  tiny.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "NFC"}]})";
  tiny.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "[\\p{L}&&[^a]]+|\\s{1,3}+"}, "behavior": "Isolated",
       "invert": false},
      {"type": "Digits", "individual_digits": true}, {"type": "Punctuation"},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]})";
  tiny.post_processor = R"({"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [5], "tokens": ["<s>"]}}})";
  tiny.model_extra = R"("unk_token": "a", "fuse_unk": false, "ignore_merges": true,)";
  const std::pair<const char*, std::string> files[] = {
      {"tokenizer.json",
       seed % 3 == 0 ? TinyTokenizerJson(tiny) : PlainTokenizerJson(seed % 3 == 1)},
      {"vocab.json", tiny.vocab},
      {"merges.txt", "#version: 0.2\na b\nab c\n"},
      {"tokenizer_config.json", R"({"bos_token": {"content": "<s>"},
      "eos_token": "abc", "add_bos_token": true, "clean_up_tokenization_spaces": false,
      "added_tokens_decoder": {"8": {"content": "<y>", "rstrip": true}},
      "chat_template": [{"name": "default", "template": "x"}]})"}};
  const size_t damaged = seed % std::size(files);
  for (size_t i = 0; i < std::size(files); ++i) {
    // Without a tokenizer.json the other two are read.
    const bool absent = i == 0 && (damaged == 1 || damaged == 2 || seed % 8 == 3);
    const auto& [name, text] = files[i];
    if (absent) {
      std::filesystem::remove(folder.path() / name);
    } else {
      folder.Write(name, i == damaged ? mutate(text) : text);
    }
  }
}

inline size_t PeakMegabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) >> 10;
}

inline void ExpectMutationsAreHarmless(uint32_t first_seed, uint32_t count) {
  constexpr size_t kAllowedMegabytes = 200;
  const size_t before = PeakMegabytes();
  int read = 0;
  int refused = 0;
  const TemporaryFolder folder;
  for (uint32_t seed = first_seed; seed < first_seed + count; ++seed) {
    WriteFiles(folder, seed);
    const auto source = ReadTokenizerFiles(folder.path());
    if (!source.ok()) {
      EXPECT_FALSE(source.status().message().empty());
      ++refused;
      continue;
    }
    ASSERT_TRUE(source->has_value());
    const auto tokenizer = Tokenizer::Create(**source);
    if (!tokenizer.ok()) {
      ++refused;
      continue;
    }
    ++read;
    const auto ids = (*tokenizer)->Encode("abc <s> 12 <x>! \u00e9", /*add_special_tokens=*/true);
    (*tokenizer)->Decode(ids, /*skip_special_tokens=*/false);
  }
  // Both happen often, else the mutations would test little.
  EXPECT_GT(read, static_cast<int>(count / 20));
  EXPECT_GT(refused, static_cast<int>(count / 20));
  EXPECT_LT(PeakMegabytes(), before + kAllowedMegabytes);
}

}  // namespace spry
