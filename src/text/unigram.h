// Unigram: of all ways to cut a text into pieces, the one with the greatest sum of scores.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/prefix_trie.h"
#include "text/token_model.h"
#include "text/unknown_text.h"
#include "text/vocab_source.h"

namespace spry {

class Unigram : public TokenModel {
 public:
  // The ids of the added tokens must be in range. Refuses scores that are missing or no numbers,
  // and pieces so long that the work for a text would have no bound to speak of.
  static Result<std::unique_ptr<TokenModel>> Create(const VocabSource& source);

  std::unique_ptr<TokenModel::Scratch> NewScratch() const override {
    return std::make_unique<Scratch>();
  }
  void Encode(std::string_view word, TokenModel::Scratch& scratch,
              std::vector<TokenId>& ids) const override;

 private:
  static constexpr int32_t kNone = -1;

  // The best way to a place in the text.
  struct Place {
    double score = 0;
    int32_t start = kNone;  // of its last piece
    int32_t id = kNone;     // kNone: a character that no piece covers
  };
  struct Scratch : TokenModel::Scratch {
    std::vector<Place> places;
    std::vector<std::pair<int32_t, int32_t>> path;  // where a piece ends and its id, backwards
  };
  Unigram(PrefixTrie trie, UnknownText unknown) : trie_(std::move(trie)), unknown_(unknown) {}
  void FindPath(std::string_view word, Scratch& scratch) const;
  static void StartSumsAnew(size_t at, size_t last, std::vector<Place>& places);
  int32_t Find(std::string_view text) const;

  PrefixTrie trie_;
  UnknownText unknown_;
  std::vector<double> scores_;
  std::vector<bool> user_defined_;
  double unknown_score_ = 0;
  bool sentence_piece_ = false;  // sums in single precision, and other details
};

}  // namespace spry
