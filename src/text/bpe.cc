#include "text/bpe.h"

#include <fmt/format.h>

#include "text/byte_alphabet.h"

namespace spry {

Result<std::unique_ptr<TokenModel>> Bpe::Create(const VocabSource& source) {
  SPRY_ASSIGN_OR_RETURN(PieceTable pieces, PieceTable::WithRoomFor(source.pieces));
  std::unique_ptr<Bpe> bpe(new Bpe(std::move(pieces), source.merges.size()));
  bpe->ignore_merges_ = source.ignore_merges;
  bpe->unknown_ = source.unknown;
  bpe->AddPieces(source);
  SPRY_RETURN_IF_ERROR(bpe->AddMerges(source));
  return std::unique_ptr<TokenModel>(std::move(bpe));
}

void Bpe::AddPieces(const VocabSource& source) {
  made_.assign(source.pieces.size(), true);
  for (const AddedToken& token : source.added_tokens) made_[token.id.value()] = false;
  std::string bytes;
  for (size_t id = 0; id < source.pieces.size(); ++id) {
    bytes.clear();
    const bool spelled = AppendAlphabetBytes(source.pieces[id], bytes);
    // Not of the alphabet: no bytes of a text can make it, so it is no target of merges.
    pieces_.Append(spelled ? bytes : source.pieces[id]);
    if (spelled && !bytes.empty() && made_[id]) pieces_.Insert(static_cast<int32_t>(id));
  }
  // Behind the others: an added token may be spelled like a piece but does not hide it.
  for (const AddedToken& token : source.added_tokens) {
    bytes.clear();
    if (AppendAlphabetBytes(source.pieces[token.id.value()], bytes)) {
      pieces_.Insert(token.id.value());
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_tokens_[byte] = pieces_.Find({&c, 1});
    if (byte_tokens_[byte] != kNoToken) made_[byte_tokens_[byte]] = true;
  }
}

Status Bpe::AddMerges(const VocabSource& source) {
  std::string bytes;
  for (size_t rank = 0; rank < source.merges.size(); ++rank) {
    const auto& [left, right] = source.merges[rank];
    bytes.clear();
    bool spelled = AppendAlphabetBytes(left, bytes);
    const size_t middle = bytes.size();
    spelled = spelled && AppendAlphabetBytes(right, bytes);
    const std::string_view all = bytes;
    if (!spelled) {
      return InvalidArgument(fmt::format(
          "merge {} (\"{}\" \"{}\") is not spelled in the byte-level alphabet", rank, left, right));
    }
    const int32_t left_id = pieces_.Find(all.substr(0, middle));
    const int32_t right_id = pieces_.Find(all.substr(middle));
    const int32_t merged = pieces_.Find(all);
    if (left_id == kNoToken || right_id == kNoToken || merged == kNoToken) {
      const std::string missing = left_id == kNoToken    ? left
                                  : right_id == kNoToken ? right
                                                         : left + right;
      return InvalidArgument(fmt::format("merge {} (\"{}\" \"{}\"): the vocabulary has no \"{}\"",
                                         rank, left, right, missing));
    }
    merges_.Add(left_id, right_id, merged);
    made_[merged] = true;
  }
  return {};
}

void Bpe::Encode(std::string_view word, TokenModel::Scratch& scratch,
                 std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    if (const int32_t id = pieces_.Find(word); id != kNoToken && made_[id]) {
      ids.emplace_back(id);
      return;
    }
  }
  PairMerges::Symbols& symbols = static_cast<Scratch&>(scratch).symbols;
  symbols.Clear();
  for (const char c : word) {
    const int32_t id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id != kNoToken) {
      symbols.Add(id);
    } else if (unknown_) {
      symbols.Add(unknown_->value());
    }  // else as the reference: a byte without a token vanishes
  }
  merges_.Merge(symbols, ids);
}

}  // namespace spry
