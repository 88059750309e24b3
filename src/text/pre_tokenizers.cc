#include "text/pre_tokenizers.h"

#include <fmt/format.h>

#include <string>

#include "text/split_patterns.h"
#include "text/unicode_tables.h"

namespace spry {
namespace {

// The patterns are those of the models' own tokenizer.json files.
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kGpt4oPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kDeepSeek3Pattern =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})"
    R"(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a})"
    R"(\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556})"
    R"(\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf})"
    R"(\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d})"
    R"(\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d})"
    R"(\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4})"
    R"(\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4})"
    R"(\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124})"
    R"(\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f})"
    R"(\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4})"
    R"(\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f})"
    R"(\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17})"
    R"(\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3})"
    R"(\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df})"
    R"(\x{1e900}-\x{1e943}]+)";

constexpr std::string_view kDeepSeekPunctuation =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";

constexpr std::string_view kDeepSeekCjk =
    R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";

// White space and punctuation of several scripts end a word.
constexpr std::string_view kBloomPattern =
    R"( ?[^(\s|[.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c}])]+)";

void Cut(std::string_view pattern, VocabSource& source) {
  VocabSource::Split split;
  split.pattern = pattern;
  source.splits.push_back(split);
}

// A step behind ByteLevel.
void CutSpelled(std::string_view pattern, VocabSource& source) {
  Cut(pattern, source);
  source.splits.back().byte_level = true;
}

void Gpt2(VocabSource& source) { Cut(kGpt2Pattern, source); }

void GptNeox(VocabSource& source) {
  source.normalizer.push_back({.kind = NormalizerStep::Kind::kNfc});
  Gpt2(source);
}

void SmolLm(VocabSource& source) {
  Cut(DigitPattern(), source);
  Gpt2(source);
}

void CommandR(VocabSource& source) {
  source.normalizer.push_back({.kind = NormalizerStep::Kind::kNfc});
  SmolLm(source);
}

void Falcon(VocabSource& source) {
  Cut(PunctuationPattern() + "+", source);
  Gpt2(source);
  CutSpelled(DigitPattern() + "+", source);
  CutSpelled("[0-9][0-9][0-9]", source);
}

void Cl100k(VocabSource& source) { Cut(kLlama3Pattern, source); }

void Glm4(VocabSource& source) {
  source.ignore_merges = true;
  Cl100k(source);
}

void Llama3(VocabSource& source) {
  source.ignore_merges = true;
  source.add_bos = source.bos.has_value();
  Cl100k(source);
}

void Tekken(VocabSource& source) {
  source.ignore_merges = true;
  source.add_bos = source.bos.has_value();
  Cut(kTekkenPattern, source);
}

void Qwen2Split(VocabSource& source) { Cut(kQwen2Pattern, source); }

void Qwen2(VocabSource& source) {
  source.normalizer.push_back({.kind = NormalizerStep::Kind::kNfc});
  Qwen2Split(source);
}

void Qwen35(VocabSource& source) { Cut(kQwen35Pattern, source); }

void Gpt4o(VocabSource& source) { Cut(kGpt4oPattern, source); }

void DeepSeekLlm(VocabSource& source) {
  Cut(R"([\r\n])", source);
  Cut(kDeepSeekLetters, source);
  Cut(kDeepSeekPunctuation, source);
  Cut(R"(\s+$)", source);
  Cut(kDeepSeekCjk, source);
  Cut(DigitPattern(), source);
}

void DeepSeekCoder(VocabSource& source) {
  Cut(R"([\r\n])", source);
  Cut(R"(\s?\p{L}+)", source);
  Cut(R"(\s?\p{P}+)", source);
  Cut(kDeepSeekCjk, source);
  Cut(DigitPattern(), source);
}

void DeepSeek3(VocabSource& source) {
  Cut(R"(\p{N}{1,3})", source);
  Cut(R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)", source);
  Cut(kDeepSeek3Pattern, source);
}

void Bloom(VocabSource& source) { Cut(kBloomPattern, source); }

struct Entry {
  std::string_view name;
  void (*apply)(VocabSource&);
};

constexpr Entry kEntries[] = {
    {"bloom", Bloom},
    {"chatglm-bpe", Cl100k},
    {"codeshell", SmolLm},
    {"command-r", CommandR},
    {"dbrx", Cl100k},
    {"deepseek-coder", DeepSeekCoder},
    {"deepseek-llm", DeepSeekLlm},
    {"deepseek-r1-qwen", Qwen2Split},
    {"deepseek-v3", DeepSeek3},
    {"default", Falcon},
    {"exaone", SmolLm},
    {"exaone4", Gpt2},
    {"falcon", Falcon},
    {"falcon3", Llama3},
    {"glm4", Glm4},
    {"gpt-2", Gpt2},
    {"gpt-4o", Gpt4o},
    {"llama-bpe", Llama3},
    {"llama-v3", Llama3},
    {"llama3", Llama3},
    {"llama4", Gpt4o},
    {"mpt", GptNeox},
    {"olmo", GptNeox},
    {"phi-2", Gpt2},
    {"qwen2", Qwen2},
    {"qwen35", Qwen35},
    {"refact", SmolLm},
    {"smaug-bpe", Cl100k},
    {"smollm", SmolLm},
    {"stablelm2", Qwen2Split},
    {"starcoder", SmolLm},
    {"tekken", Tekken},
};

}  // namespace

Status ApplyPreTokenizer(std::string_view name, VocabSource& source) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (entry.name == name) {
      source.splits.clear();
      source.normalizer.clear();
      entry.apply(source);
      return {};
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  return Unimplemented(fmt::format("tokenizer.ggml.pre is \"{}\"; supported: {}", name, known));
}

}  // namespace spry
