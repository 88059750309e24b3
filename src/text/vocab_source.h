// A vocabulary in plain data: what every file format (tokenizer.json, vocab.json + merges.txt,
// tokenizer.model, GGUF) is turned into, and all that the tokenizer is built from.
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
  std::string content;         // UTF-8
  bool special = false;        // left out of decoded text when special tokens are skipped
  bool lstrip = false;         // takes the white space to its left
  bool rstrip = false;         // takes the white space to its right
  bool single_word = false;    // matches only between non-word characters
  bool normalized = false;     // matched in the normalised text
  bool outside_model = false;  // the model's own vocabulary lacks it, so it never comes from merges
};

// One step of what is done to the text before it is cut.
struct NormalizerStep {
  enum class Kind {
    kNfc,
    kPrepend,         // `content` goes in front
    kReplace,         // `content` takes the place of the text `pattern`
    kReplacePattern,  // the same of each match of `pattern` (regex_syntax.h)
    kStripRight,      // white space behind the text goes
    kPrecompiled,     // `content` is a character map (precompiled_map.h), used as `tokenizers` do
    kSentencePiece,   // what SentencePiece does, see VocabSource::SentencePiece
  };
  Kind kind;
  std::string pattern;
  std::string content;
};

struct VocabSource {
  enum class Model {
    kByteLevelBpe,  // merges of bytes, spelled in GPT-2's byte-level alphabet
    kBpe,           // merges of characters
    kScoredBpe,     // SentencePiece's: of two neighbours that make a piece, the best score first
    kUnigram,       // the pieces with the best sum of scores
  };
  Model model = Model::kByteLevelBpe;

  // The text of token i; added tokens are here too, spelled as they are. Holes are empty. In
  // byte-level BPE in the byte-level alphabet (a space is U+0120), elsewhere a space is U+2581.
  std::vector<std::string> pieces;
  std::vector<double> scores;  // kScoredBpe, kUnigram: one a piece
  // SentencePiece's pieces that never stand for themselves (kScoredBpe: others are made of them);
  // may be empty.
  std::vector<bool> unused;
  // SentencePiece's pieces that its normaliser leaves alone; in kUnigram their score is replaced.
  std::vector<TokenId> user_defined;
  bool unigram_of_sentence_piece = false;  // in the details where `tokenizers` differs
  // In the order of their rank.
  std::vector<std::pair<std::string, std::string>> merges;
  bool byte_fallback = false;  // what has no piece becomes the pieces <0x00> to <0xFF>
  bool fuse_unknown = false;   // unknown characters side by side are one unknown token
  std::vector<AddedToken> added_tokens;

  // What cuts the text before BPE, one after another. Empty: the text is one piece.
  struct Split {
    enum class Behavior {
      kIsolated,            // a match is a piece of its own
      kMatchesOnly,         // and what lies between is dropped
      kRemoved,             // a match is dropped
      kMergedWithPrevious,  // a match ends the piece before it
      kMergedWithNext,      // a match starts the piece behind it
    };
    std::string pattern;  // as tokenizer.json writes it (regex_syntax.h)
    Behavior behavior = Behavior::kIsolated;
    bool byte_level = false;  // matched in the byte-level alphabet: a step after ByteLevel
    // Metaspace: instead of cutting, spaces become U+2581 and one goes in front.
    enum class Marks { kNone, kNoPrefix, kPrefixFirst, kPrefixAll };
    Marks marks = Marks::kNone;
  };
  std::vector<Split> splits;
  std::vector<NormalizerStep> normalizer;
  // How SentencePiece normalises, for the step of that name.
  struct SentencePiece {
    bool add_dummy_prefix = true;          // U+2581 in front of the text
    bool prefix_after_special = true;      // and of text behind a special token
    bool remove_extra_whitespaces = true;  // spaces around the text, and all but one in a row
    bool escape_whitespaces = true;        // spaces become U+2581
    bool whitespace_as_suffix = false;     // the prefix goes behind
    std::string chars_map;                 // a character map (precompiled_map.h), or empty
  };
  SentencePiece sentence_piece;
  bool add_prefix_space = false;
  bool ignore_merges = false;  // a piece that is a whole token is taken without merging

  // How tokens become text again, where the model is not byte-level.
  struct Decoding {
    std::vector<std::pair<std::string, std::string>> replacements;  // in each piece, in this order
    bool byte_pieces = false;                                       // <0x0A> stands for a byte
    // Of bytes that are no character: with one broken, each byte of the whole run is a U+FFFD, as
    // in `tokenizers`; else the broken ones alone, as in SentencePiece.
    bool runs_break_whole = false;
    enum class Start {
      kKept,
      kSpaceDropped,        // the text's first character, if a space
      kFirstMarksDropped,   // every U+2581 of the first token
      kMarkDropped,         // one U+2581 in front of the first token that has text
      kMarksDroppedToText,  // and in front of each token until there is text
    };
    Start start = Start::kKept;
  };
  Decoding decoding;

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
