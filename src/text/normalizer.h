// What is done to a text before it is cut into pieces: the steps of VocabSource::normalizer.
// Immutable after Create; threads may share one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/added_tokens.h"
#include "text/pattern.h"
#include "text/precompiled_map.h"
#include "text/vocab_source.h"

namespace spry {

// Unicode normalisation form C, as the `tokenizers` library does it. `text` is valid UTF-8.
// Linear in its length, whatever runs of marks it holds.
std::string NormalizeNfc(std::string_view text);

// Where a piece of text between added tokens lies.
struct TextPlace {
  enum class Before { kNothing, kSpecialToken, kPlainToken };
  Before before = Before::kNothing;
  bool plain_token_after = false;
};

class Normalizer {
 public:
  // Refuses a pattern that does not compile and a character map that is damaged.
  static Result<Normalizer> Create(const VocabSource& source);

  // Whether Normalize gives back every text as it is.
  bool keeps_all() const { return steps_.empty(); }
  // `text` is valid UTF-8 and not empty.
  std::string Normalize(std::string_view text, const TextPlace& place) const;
  // The same for the content of a token that is matched in the normalised text.
  std::string NormalizeToken(std::string_view content) const;

 private:
  struct Step {
    NormalizerStep step;
    std::optional<Pattern> pattern;
    std::optional<PrecompiledMap> map;
  };
  explicit Normalizer(const VocabSource& source);
  std::string Apply(const Step& step, std::string text, const TextPlace& place) const;
  std::string SentencePiece(std::string_view text, const TextPlace& place) const;
  std::string MapCharacters(std::string_view text) const;

  std::vector<Step> steps_;
  VocabSource::SentencePiece sentence_piece_;
  std::optional<PrecompiledMap> sentence_piece_map_;
  AddedTokenMatcher user_defined_;  // what the map leaves alone
};

}  // namespace spry
