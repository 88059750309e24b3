#include "text/scored_bpe.h"

#include <algorithm>

#include "text/byte_pieces.h"
#include "text/scores.h"
#include "text/utf8.h"

namespace spry {
namespace {

// Makes the best candidate the top of a heap.
constexpr auto kWorse = [](const auto& a, const auto& b) {
  return a.score != b.score ? a.score < b.score : a.left > b.left;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> ScoredBpe::Create(const VocabSource& source) {
  SPRY_RETURN_IF_ERROR(CheckScores(source));
  SPRY_ASSIGN_OR_RETURN(PieceTable pieces, PieceTable::WithRoomFor(source.pieces));
  SPRY_ASSIGN_OR_RETURN(UnknownText unknown, UnknownText::Create(source));
  std::unique_ptr<ScoredBpe> bpe(new ScoredBpe(std::move(pieces), unknown));
  bpe->scores_ = source.scores;
  bpe->unused_ = source.unused;
  bpe->unused_.resize(source.pieces.size());
  std::vector<bool> made(source.pieces.size(), true);
  for (const AddedToken& token : source.added_tokens) made[token.id.value()] = false;
  for (size_t id = 0; id < source.pieces.size(); ++id) {
    const std::string& piece = source.pieces[id];
    bpe->pieces_.Append(piece);
    // A user's literal "<0x40>" is six characters, never the byte.
    if (!made[id] || piece.empty() || (source.byte_fallback && BytePiece(piece))) continue;
    bpe->pieces_.Insert(static_cast<int32_t>(id));
    bpe->longest_ = std::max(bpe->longest_, piece.size());
  }
  return std::unique_ptr<TokenModel>(std::move(bpe));
}

void ScoredBpe::AddCandidate(int32_t left, int32_t right, Scratch& scratch) const {
  if (left < 0 || right < 0) return;
  const std::string_view first = scratch.symbols[left].text;
  const std::string_view second = scratch.symbols[right].text;
  const size_t size = first.size() + second.size();
  if (size > longest_) return;
  const int32_t id = pieces_.Find({first.data(), size});  // the two lie side by side
  if (id == PieceTable::kNoToken) return;
  scratch.heap.push_back({scores_[id], left, right, size});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), kWorse);
  if (unused_[id]) scratch.parts[id] = {first, second};
}

void ScoredBpe::MergeAll(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  scratch.parts.clear();
  for (size_t i = 1; i < symbols.size(); ++i) {
    AddCandidate(static_cast<int32_t>(i) - 1, static_cast<int32_t>(i), scratch);
  }
  while (!heap.empty()) {
    const Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), kWorse);
    heap.pop_back();
    Symbol& left = symbols[top.left];
    Symbol& right = symbols[top.right];
    if (left.text.empty() || right.text.empty() ||
        left.text.size() + right.text.size() != top.size) {
      continue;
    }
    left.text = {left.text.data(), top.size};
    left.next = right.next;
    right.text = {};
    if (left.next >= 0) symbols[left.next].previous = top.left;
    AddCandidate(left.previous, top.left, scratch);
    AddCandidate(top.left, left.next, scratch);
  }
}

void ScoredBpe::Encode(std::string_view word, TokenModel::Scratch& scratch_base,
                       std::vector<TokenId>& ids) const {
  Scratch& scratch = static_cast<Scratch&>(scratch_base);
  auto& symbols = scratch.symbols;
  symbols.clear();
  while (!word.empty()) {
    const std::string_view character = word.substr(0, DecodeUtf8(word).length);
    word.remove_prefix(character.size());
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({character, index - 1, word.empty() ? -1 : index + 1});
  }
  MergeAll(scratch);
  UnknownText::Run run;
  for (int32_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[i].next) {
    Emit(symbols[i].text, scratch, run, ids);
  }
}

// An unused piece is given as the two texts that made it; each was made before it and is shorter,
// so this ends.
void ScoredBpe::Emit(std::string_view text, const Scratch& scratch, UnknownText::Run& run,
                     std::vector<TokenId>& ids) const {
  const int32_t id = pieces_.Find(text);
  if (id == PieceTable::kNoToken) {
    unknown_.Append(text, run, ids);
    return;
  }
  const auto parts = unused_[id] ? scratch.parts.find(id) : scratch.parts.end();
  if (parts != scratch.parts.end()) {
    Emit(parts->second.first, scratch, run, ids);
    Emit(parts->second.second, scratch, run, ids);
    return;
  }
  run.open = false;
  ids.emplace_back(id);
}

}  // namespace spry
