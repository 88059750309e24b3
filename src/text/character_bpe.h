// BPE over characters, as `tokenizers` does it: the characters of a text, each a token, an unknown
// one as its bytes or as the unknown token, merged pair by pair.
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

class CharacterBpe : public TokenModel {
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
  CharacterBpe(PieceTable pieces, size_t merges) : pieces_(std::move(pieces)), merges_(merges) {}
  Status AddMerges(const VocabSource& source);
  bool AddBytes(std::string_view character, PairMerges::Symbols& symbols) const;

  PieceTable pieces_;
  PairMerges merges_;
  std::optional<TokenId> unknown_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::array<int32_t, 256> byte_tokens_{};
};

}  // namespace spry
