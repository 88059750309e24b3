#include "text/character_bpe.h"

#include <fmt/format.h>

#include "text/byte_pieces.h"
#include "text/utf8.h"

namespace spry {

Result<std::unique_ptr<TokenModel>> CharacterBpe::Create(const VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(PieceTable pieces, PieceTable::WithRoomFor(source.pieces));
  std::unique_ptr<CharacterBpe> bpe(new CharacterBpe(std::move(pieces), source.merges.size()));
  bpe->unknown_ = source.unknown;
  bpe->fuse_unknown_ = source.fuse_unknown;
  bpe->byte_fallback_ = source.byte_fallback;
  bpe->ignore_merges_ = source.ignore_merges;
  bpe->byte_tokens_ = FindBytePieces(source.pieces);
  std::vector<bool> outside(source.pieces.size());
  for (const AddedToken& token : source.added_tokens) {
    outside[token.id.value()] = token.outside_model;
  }
  for (size_t id = 0; id < source.pieces.size(); ++id) {
    bpe->pieces_.Append(source.pieces[id]);
    // A user's literal "<0x40>" is six characters, never the byte.
    const bool byte = source.byte_fallback && BytePiece(source.pieces[id]);
    if (!byte && !outside[id] && !source.pieces[id].empty()) {
      bpe->pieces_.Insert(static_cast<int32_t>(id));
    }
  }
  SPRY_RETURN_IF_ERROR(bpe->AddMerges(source));
  return std::unique_ptr<TokenModel>(std::move(bpe));
}

Status CharacterBpe::AddMerges(const VocabSource& source) {
  for (size_t rank = 0; rank < source.merges.size(); ++rank) {
    const auto& [left, right] = source.merges[rank];
    const std::string all = left + right;
    const std::pair<std::string_view, int32_t> parts[] = {
        {left, pieces_.Find(left)}, {right, pieces_.Find(right)}, {all, pieces_.Find(all)}};
    for (const auto& [text, id] : parts) {
      if (id != kNoToken) continue;
      return InvalidArgument(fmt::format("merge {} (\"{}\" \"{}\"): the vocabulary has no \"{}\"",
                                         rank, left, right, text));
    }
    merges_.Add(parts[0].second, parts[1].second, parts[2].second);
  }
  return {};
}

// False, with nothing added, when the vocabulary lacks one of the bytes.
bool CharacterBpe::AddBytes(std::string_view character, PairMerges::Symbols& symbols) const {
  if (!byte_fallback_) return false;
  for (const char c : character) {
    if (byte_tokens_[static_cast<uint8_t>(c)] == kNoToken) return false;
  }
  for (const char c : character) symbols.Add(byte_tokens_[static_cast<uint8_t>(c)]);
  return true;
}

void CharacterBpe::Encode(std::string_view word, TokenModel::Scratch& scratch,
                          std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    if (const int32_t id = pieces_.Find(word); id != kNoToken) {
      ids.emplace_back(id);
      return;
    }
  }
  PairMerges::Symbols& symbols = static_cast<Scratch&>(scratch).symbols;
  symbols.Clear();
  // The reference keeps an unknown character back until it sees the next known one, which matters
  // where bytes come in between.
  bool unknown_waits = false;
  const auto add_waiting = [&] {
    if (unknown_waits) symbols.Add(unknown_->value());
    unknown_waits = false;
  };
  while (!word.empty()) {
    const std::string_view character = word.substr(0, DecodeUtf8(word).length);
    word.remove_prefix(character.size());
    if (const int32_t id = pieces_.Find(character); id != kNoToken) {
      add_waiting();
      symbols.Add(id);
    } else if (!AddBytes(character, symbols) && unknown_) {
      if (!fuse_unknown_) add_waiting();
      unknown_waits = true;
    }
  }
  add_waiting();
  merges_.Merge(symbols, ids);
}

}  // namespace spry
