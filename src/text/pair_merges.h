// The merges of a BPE vocabulary as pairs of ids, and merging a row of symbols by them: always the
// pair of the lowest rank, of equals the leftmost. n log n in the number of symbols.
// Immutable once filled; threads may share one, each with its own Symbols.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace spry {

class PairMerges {
 public:
  explicit PairMerges(size_t count);

  // The next merge in rank. Of a pair that is listed twice the last counts, as in `tokenizers`.
  void Add(int32_t left, int32_t right, int32_t merged);

  // The symbols of a piece of text, and memory that is used again.
  class Symbols {
   public:
    void Clear() { symbols_.clear(); }
    void Add(int32_t id) { symbols_.push_back({id, kNoRank, 0, 0}); }

   private:
    friend class PairMerges;
    struct Symbol {
      int32_t id;
      int32_t rank;  // of the merge with the symbol to the right
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      int32_t rank;
      int32_t position;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  // Merges `symbols` as far as it goes and appends the ids.
  void Merge(Symbols& symbols, std::vector<TokenId>& ids) const;

 private:
  static constexpr int32_t kNoRank = INT32_MAX;

  struct Slot {
    uint64_t pair = 0;  // left and right id
    int32_t rank = kNoRank;
  };
  size_t SlotOf(uint64_t pair) const;
  int32_t RankOf(int32_t left, int32_t right) const;
  void MergeShort(Symbols& work, std::vector<TokenId>& ids) const;
  void MergeLong(Symbols& work, std::vector<TokenId>& ids) const;

  std::vector<Slot> slots_;      // open addressing by pair
  std::vector<int32_t> merged_;  // by rank: the id that the merge makes
};

}  // namespace spry
