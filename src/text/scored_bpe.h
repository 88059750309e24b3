// SentencePiece's BPE: a text's characters merged as long as two neighbours make a piece, always
// the pair whose piece has the best score, of equals the leftmost. Reached in n log n steps, each
// on texts no longer than the longest piece.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/piece_table.h"
#include "text/token_model.h"
#include "text/unknown_text.h"
#include "text/vocab_source.h"

namespace spry {

class ScoredBpe : public TokenModel {
 public:
  // The ids of the added tokens must be in range. Refuses a vocabulary that has no token for some
  // text: neither an unknown token nor all byte pieces.
  static Result<std::unique_ptr<TokenModel>> Create(const VocabSource& source);

  std::unique_ptr<TokenModel::Scratch> NewScratch() const override {
    return std::make_unique<Scratch>();
  }
  void Encode(std::string_view word, TokenModel::Scratch& scratch,
              std::vector<TokenId>& ids) const override;

 private:
  struct Symbol {
    std::string_view text;  // empty: merged into the one before
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    double score;
    int32_t left;
    int32_t right;
    size_t size;  // of both; once they have grown the candidate is out of date
  };
  struct Scratch : TokenModel::Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    // Of unused pieces that were made: the two texts that made them last.
    std::unordered_map<int32_t, std::pair<std::string_view, std::string_view>> parts;
  };
  ScoredBpe(PieceTable pieces, UnknownText unknown)
      : pieces_(std::move(pieces)), unknown_(unknown) {}
  void AddCandidate(int32_t left, int32_t right, Scratch& scratch) const;
  void MergeAll(Scratch& scratch) const;
  void Emit(std::string_view text, const Scratch& scratch, UnknownText::Run& run,
            std::vector<TokenId>& ids) const;

  PieceTable pieces_;
  UnknownText unknown_;
  std::vector<double> scores_;
  std::vector<bool> unused_;
  size_t longest_ = 0;  // piece, in bytes
};

}  // namespace spry
