// A byte-level BPE vocabulary in plain data: what every file format (tokenizer.json, vocab.json +
// merges.txt, GGUF) is turned into, and all that the tokenizer is built from.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace spry {

// A token that is matched in the text before anything else (Hugging Face's AddedToken).
struct AddedToken {
  TokenId id;
  std::string content;       // UTF-8
  bool special = false;      // left out of decoded text when special tokens are skipped
  bool lstrip = false;       // takes the white space to its left
  bool rstrip = false;       // takes the white space to its right
  bool single_word = false;  // matches only between non-word characters
  bool normalized = false;   // matched in the normalised text
};

struct VocabSource {
  // The text of token i, in the byte-level alphabet of GPT-2 (a space is U+0120); added tokens
  // are here too, spelled as they are. Holes are empty.
  std::vector<std::string> pieces;
  // In the order of their rank.
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<AddedToken> added_tokens;

  // What cuts the text before BPE, one after another. Empty: the text is one piece.
  struct Split {
    std::string pattern;        // as tokenizer.json writes it (regex_syntax.h)
    bool matches_only = false;  // what lies between matches is dropped, not a piece of its own
    bool byte_level = false;    // matched in the byte-level alphabet: a step after ByteLevel
  };
  std::vector<Split> splits;
  bool nfc = false;  // normalise to NFC first
  bool add_prefix_space = false;
  bool ignore_merges = false;  // a piece that is a whole token is taken without merging

  bool add_bos = false;  // put bos in front when special tokens are asked for
  bool add_eos = false;
  std::optional<TokenId> bos, eos, unknown;
  std::vector<TokenId> end_of_turn;  // further ids that end generation (eot, eom)
  std::string chat_template;         // Jinja source, empty when there is none
  std::string tool_use_template;     // the one to use when there are tools; may be empty
  // The special tokens by the names that templates know them by: "bos_token" -> "<s>". What the
  // files do not name is taken from the ids above.
  std::vector<std::pair<std::string, std::string>> special_texts;
};

}  // namespace spry
