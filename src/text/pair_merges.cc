#include "text/pair_merges.h"

#include <algorithm>
#include <bit>

namespace spry {
namespace {

// Up to this many symbols a scan for the best merge beats a heap.
constexpr size_t kShortWord = 48;

uint64_t PairOf(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t HashPair(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;  // Fibonacci hashing; the high bits are the good ones
  return pair ^ pair >> 32;
}

}  // namespace

PairMerges::PairMerges(size_t count) : slots_(std::bit_ceil(count * 2 + 16)) {
  merged_.reserve(count);
}

void PairMerges::Add(int32_t left, int32_t right, int32_t merged) {
  const uint64_t pair = PairOf(left, right);
  slots_[SlotOf(pair)] = {pair, static_cast<int32_t>(merged_.size())};
  merged_.push_back(merged);
}

size_t PairMerges::SlotOf(uint64_t pair) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = HashPair(pair) & mask;
  while (slots_[slot].rank != kNoRank && slots_[slot].pair != pair) slot = (slot + 1) & mask;
  return slot;
}

int32_t PairMerges::RankOf(int32_t left, int32_t right) const {
  return slots_[SlotOf(PairOf(left, right))].rank;
}

void PairMerges::Merge(Symbols& work, std::vector<TokenId>& ids) const {
  auto& symbols = work.symbols_;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    symbols[i].rank = RankOf(symbols[i].id, symbols[i + 1].id);
  }
  if (symbols.size() <= kShortWord) {
    MergeShort(work, ids);
  } else {
    MergeLong(work, ids);
  }
}

void PairMerges::MergeShort(Symbols& work, std::vector<TokenId>& ids) const {
  auto& symbols = work.symbols_;
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
  for (const Symbols::Symbol& symbol : symbols) ids.emplace_back(symbol.id);
}

// Symbols in a linked list, candidates in a heap by (rank, position). A symbol that was merged
// away has rank kNoRank; a candidate whose rank is no longer its symbol's is out of date.
void PairMerges::MergeLong(Symbols& work, std::vector<TokenId>& ids) const {
  auto& symbols = work.symbols_;
  auto& heap = work.heap_;
  const auto later = [](const Symbols::Candidate& a, const Symbols::Candidate& b) {
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
    const Symbols::Candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    Symbols::Symbol& left = symbols[top.position];
    if (left.rank != top.rank) continue;
    Symbols::Symbol& right = symbols[left.next];
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
