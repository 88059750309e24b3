#include "text/bpe.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "text/byte_alphabet.h"

namespace spry {
namespace {

// Up to this many symbols a scan for the best merge beats a heap.
constexpr size_t kShortWord = 48;
constexpr size_t kMaxArenaBytes = UINT32_MAX;

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t HashPair(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;  // Fibonacci hashing; the high bits are the good ones
  return pair ^ pair >> 32;
}

size_t TableSize(size_t entries) { return std::bit_ceil(entries * 2 + 16); }

}  // namespace

Result<Bpe> Bpe::Create(const VocabSource& source) {
  Bpe bpe;
  bpe.ignore_merges_ = source.ignore_merges;
  bpe.unknown_ = source.unknown;
  SPRY_RETURN_IF_ERROR(bpe.AddPieces(source));
  SPRY_RETURN_IF_ERROR(bpe.AddMerges(source));
  return bpe;
}

Status Bpe::AddPieces(const VocabSource& source) {
  size_t total = 0;
  for (const std::string& piece : source.pieces) total += piece.size();
  if (source.pieces.size() > INT32_MAX || total > kMaxArenaBytes) {
    return InvalidArgument(fmt::format("vocabulary: {} tokens with {} bytes are too many",
                                       source.pieces.size(), total));
  }
  arena_.reserve(total);
  spans_.reserve(source.pieces.size());
  token_table_.resize(TableSize(source.pieces.size()));
  made_.assign(source.pieces.size(), true);
  for (const AddedToken& token : source.added_tokens) made_[token.id.value()] = false;
  for (size_t id = 0; id < source.pieces.size(); ++id) {
    const size_t begin = arena_.size();
    const std::string& piece = source.pieces[id];
    const bool spelled = AppendAlphabetBytes(piece, arena_);
    // Not of the alphabet: no bytes of a text can make it, so it is no target of merges.
    if (!spelled) arena_.append(piece);
    spans_.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(arena_.size() - begin)});
    if (spelled && !piece.empty() && made_[id]) Insert(static_cast<int32_t>(id));
  }
  // Behind the others: an added token may be spelled like a piece but does not hide it.
  for (const AddedToken& token : source.added_tokens) {
    std::string bytes;
    if (AppendAlphabetBytes(source.pieces[token.id.value()], bytes)) Insert(token.id.value());
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    byte_tokens_[byte] = Find({&c, 1});
    if (byte_tokens_[byte] != kNoToken) made_[byte_tokens_[byte]] = true;
  }
  return {};
}

size_t Bpe::SlotOf(std::string_view bytes, uint64_t hash) const {
  const size_t mask = token_table_.size() - 1;
  const auto upper = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & mask;
  while (token_table_[slot].id != kNoToken &&
         (token_table_[slot].hash != upper || Bytes(token_table_[slot].id) != bytes)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void Bpe::Insert(int32_t id) {
  const std::string_view bytes = Bytes(id);
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  TokenSlot& slot = token_table_[SlotOf(bytes, hash)];
  if (slot.id == kNoToken) slot = {static_cast<uint32_t>(hash >> 32), id};
}

int32_t Bpe::Find(std::string_view bytes) const {
  return token_table_[SlotOf(bytes, XXH3_64bits(bytes.data(), bytes.size()))].id;
}

Status Bpe::AddMerges(const VocabSource& source) {
  merge_table_.resize(TableSize(source.merges.size()));
  merged_.reserve(source.merges.size());
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
    const int32_t left_id = Find(all.substr(0, middle));
    const int32_t right_id = Find(all.substr(middle));
    const int32_t merged = Find(all);
    if (left_id == kNoToken || right_id == kNoToken || merged == kNoToken) {
      const std::string missing = left_id == kNoToken    ? left
                                  : right_id == kNoToken ? right
                                                         : left + right;
      return InvalidArgument(fmt::format("merge {} (\"{}\" \"{}\"): the vocabulary has no \"{}\"",
                                         rank, left, right, missing));
    }
    MergeSlot& slot = SlotOf(PairOf(left_id, right_id));
    // Of a pair that is listed twice the last entry counts, as in the reference.
    slot = {PairOf(left_id, right_id), static_cast<int32_t>(rank)};
    merged_.push_back(merged);
    made_[merged] = true;
  }
  return {};
}

Bpe::MergeSlot& Bpe::SlotOf(uint64_t pair) {
  const size_t mask = merge_table_.size() - 1;
  size_t slot = HashPair(pair) & mask;
  while (merge_table_[slot].rank != kNoRank && merge_table_[slot].pair != pair) {
    slot = (slot + 1) & mask;
  }
  return merge_table_[slot];
}

int32_t Bpe::RankOf(int32_t left, int32_t right) const {
  const uint64_t pair = PairOf(left, right);
  const size_t mask = merge_table_.size() - 1;
  size_t slot = HashPair(pair) & mask;
  while (merge_table_[slot].pair != pair && merge_table_[slot].rank != kNoRank) {
    slot = (slot + 1) & mask;
  }
  return merge_table_[slot].rank;
}

void Bpe::Encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    if (const int32_t id = Find(word); id != kNoToken && made_[id]) {
      ids.emplace_back(id);
      return;
    }
  }
  LoadSymbols(word, scratch);
  if (scratch.symbols.size() <= kShortWord) {
    MergeShort(scratch, ids);
  } else {
    MergeLong(scratch, ids);
  }
}

void Bpe::LoadSymbols(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (const char c : word) {
    int32_t id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id == kNoToken) {
      if (!unknown_) continue;  // as the reference: a byte without a token vanishes
      id = unknown_->value();
    }
    symbols.push_back({id, kNoRank, 0, 0});
  }
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    symbols[i].rank = RankOf(symbols[i].id, symbols[i + 1].id);
  }
}

void Bpe::MergeShort(Scratch& scratch, std::vector<TokenId>& ids) const {
  auto& symbols = scratch.symbols;
  while (symbols.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < symbols.size(); ++i) {
      if (symbols[i].rank < symbols[best].rank) best = i;
    }
    if (symbols[best].rank == kNoRank) break;
    symbols[best].id = merged_[symbols[best].rank];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    const auto rank_at = [&](size_t i) {
      return i + 1 < symbols.size() ? RankOf(symbols[i].id, symbols[i + 1].id) : kNoRank;
    };
    symbols[best].rank = rank_at(best);
    if (best > 0) symbols[best - 1].rank = rank_at(best - 1);
  }
  for (const Scratch::Symbol& symbol : symbols) ids.emplace_back(symbol.id);
}

// Symbols in a linked list, candidates in a heap by (rank, position). A symbol that was merged
// away has rank kNoRank; a candidate whose rank is no longer its symbol's is out of date.
void Bpe::MergeLong(Scratch& scratch, std::vector<TokenId>& ids) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto count = static_cast<int32_t>(symbols.size());
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
    if (symbols[i].rank != kNoRank) heap.push_back({symbols[i].rank, i});
  }
  std::make_heap(heap.begin(), heap.end(), later);
  const auto update = [&](int32_t i) {
    const int32_t next = symbols[i].next;
    symbols[i].rank = next < 0 ? kNoRank : RankOf(symbols[i].id, symbols[next].id);
    if (symbols[i].rank == kNoRank) return;
    heap.push_back({symbols[i].rank, i});
    std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    const Scratch::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    Scratch::Symbol& left = symbols[top.position];
    if (left.rank != top.rank) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = merged_[top.rank];
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next >= 0) symbols[left.next].previous = top.position;
    update(top.position);
    if (left.previous >= 0) update(left.previous);
  }
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = symbols[i].next) {
    ids.emplace_back(symbols[i].id);
  }
}

}  // namespace spry
