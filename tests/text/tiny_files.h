// Small tokenizer files for tests to change.
#pragma once

#include <fmt/format.h>

#include <string>

#include "tests/text/tiny_vocabulary.h"

namespace spry {

inline std::string JsonString(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

// The 256 bytes, "ab" (256) and "<s>" (257).
inline std::string TinyVocabJson() {
  std::string json = "{";
  int id = 0;
  for (const std::string& piece : ByteVocabulary().pieces) {
    json += fmt::format("{}: {}, ", JsonString(piece), id++);
  }
  return json + R"("ab": 256, "<s>": 257})";
}

// What a test changes in TinyTokenizerJson; each is JSON.
struct TinyTokenizer {
  std::string added_tokens =
      R"([{"id": 257, "content": "<s>", "special": true, "normalized": false}])";
  std::string normalizer = "null";
  std::string pre_tokenizer =
      R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  std::string post_processor = "null";
  std::string decoder = R"({"type": "ByteLevel"})";
  std::string model_type = R"("BPE")";
  std::string model_extra = "";  // members, each with a comma behind it
  std::string vocab = TinyVocabJson();
  std::string merges = R"([["a", "b"]])";
};

inline std::string TinyTokenizerJson(const TinyTokenizer& tiny) {
  return fmt::format(
      R"({{"version": "1.0", "added_tokens": {}, "normalizer": {}, "pre_tokenizer": {},
"post_processor": {}, "decoder": {},
"model": {{"type": {}, {} "vocab": {}, "merges": {}}}}})",
      tiny.added_tokens, tiny.normalizer, tiny.pre_tokenizer, tiny.post_processor, tiny.decoder,
      tiny.model_type, tiny.model_extra, tiny.vocab, tiny.merges);
}

}  // namespace spry
