#include "text/token_texts.h"

#include <unordered_map>

#include "text/byte_alphabet.h"
#include "text/byte_pieces.h"
#include "text/replace.h"
#include "text/split_patterns.h"
#include "text/utf8.h"

namespace spry {
namespace {

using Start = VocabSource::Decoding::Start;

std::string Replaced(const VocabSource::Decoding& decoding, std::string_view piece) {
  std::string text(piece);
  for (const auto& [from, to] : decoding.replacements) text = ReplaceAll(text, from, to);
  std::string valid;
  AppendLossy(text, valid);
  return valid;
}

// `piece` as it starts a text.
std::string WithoutMarks(Start start, std::string_view piece) {
  if (start == Start::kFirstMarksDropped) return ReplaceAll(piece, kSpaceMark, "");
  const bool drops = start == Start::kMarkDropped || start == Start::kMarksDroppedToText;
  if (drops && piece.starts_with(kSpaceMark)) piece.remove_prefix(kSpaceMark.size());
  return std::string(piece);
}

}  // namespace

TokenTexts::TokenTexts(const VocabSource& source, const Normalizer& normalizer)
    : entries_(source.pieces.size()) {
  std::unordered_map<size_t, std::string> respelled;
  for (const AddedToken& token : source.added_tokens) {
    entries_[token.id.value()].special = token.special;
    if (token.normalized) respelled[token.id.value()] = normalizer.NormalizeToken(token.content);
  }
  for (size_t id = 0; id < source.pieces.size(); ++id) {
    const auto other = respelled.find(id);
    const std::string& piece = other != respelled.end() ? other->second : source.pieces[id];
    Entry& entry = entries_[id];
    entry.begin = entry.first_begin = arena_.size();
    const auto byte = source.decoding.byte_pieces ? BytePiece(piece) : std::nullopt;
    if (source.model == VocabSource::Model::kByteLevelBpe) {
      if (!AppendAlphabetBytes(piece, arena_)) arena_.append(piece);
    } else if (byte) {
      entry.byte = true;
      arena_.push_back(static_cast<char>(*byte));
    } else {
      arena_.append(Replaced(source.decoding, piece));
    }
    entry.size = entry.first_size = static_cast<uint32_t>(arena_.size() - entry.begin);
    const std::string first = WithoutMarks(source.decoding.start, piece);
    if (first == piece) continue;
    entry.first_begin = arena_.size();
    arena_.append(Replaced(source.decoding, first));
    entry.first_size = static_cast<uint32_t>(arena_.size() - entry.first_begin);
  }
}

}  // namespace spry
