// Byte-level BPE: the bytes of a text, each a token, merged pair by pair.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/pair_merges.h"
#include "text/piece_table.h"
#include "text/token_model.h"
#include "text/vocab_source.h"

namespace spry {

class Bpe : public TokenModel {
 public:
  // The ids of the added tokens must be in range.
  static Result<std::unique_ptr<TokenModel>> Create(const VocabSource& source);

  std::unique_ptr<TokenModel::Scratch> NewScratch() const override {
    return std::make_unique<Scratch>();
  }
  void Encode(std::string_view word, TokenModel::Scratch& scratch,
              std::vector<TokenId>& ids) const override;

 private:
  static constexpr int32_t kNoToken = PieceTable::kNoToken;

  struct Scratch : TokenModel::Scratch {
    PairMerges::Symbols symbols;
  };
  Bpe(PieceTable pieces, size_t merges) : pieces_(std::move(pieces)), merges_(merges) {}
  void AddPieces(const VocabSource& source);
  Status AddMerges(const VocabSource& source);

  PieceTable pieces_;  // as bytes, not in the alphabet
  PairMerges merges_;
  std::vector<bool> made_;                  // by id: not just an added token, but BPE's too
  std::array<int32_t, 256> byte_tokens_{};  // kNoToken: the vocabulary lacks this byte
  std::optional<TokenId> unknown_;
  bool ignore_merges_ = false;
};

}  // namespace spry
