// The vocabulary of a byte-level BPE tokenizer and its merges: bytes in, token ids out.
// Immutable after Create; threads may share one, each with its own Scratch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/vocab_source.h"

namespace spry {

class Bpe {
 public:
  // The ids of the added tokens must be in range.
  static Result<Bpe> Create(const VocabSource& source);

  // Memory that Encode uses again from call to call.
  class Scratch {
   private:
    friend class Bpe;
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
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // Appends the ids of `word`, one piece of the text.
  void Encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const;

  // The bytes that token `id` stands for; empty for holes.
  std::string_view Bytes(int32_t id) const {
    const auto [begin, size] = spans_[id];
    return std::string_view(arena_).substr(begin, size);
  }
  int size() const { return static_cast<int>(spans_.size()); }

 private:
  static constexpr int32_t kNoRank = INT32_MAX;
  static constexpr int32_t kNoToken = -1;

  struct Span {
    uint32_t begin;
    uint32_t size;
  };
  struct TokenSlot {
    uint32_t hash = 0;  // the upper half; spares most looks at the bytes
    int32_t id = kNoToken;
  };
  struct MergeSlot {
    uint64_t pair = 0;  // left and right id
    int32_t rank = kNoRank;
  };
  Bpe() = default;
  Status AddPieces(const VocabSource& source);
  Status AddMerges(const VocabSource& source);
  void Insert(int32_t id);
  int32_t Find(std::string_view bytes) const;
  // The slot of `bytes`, or the free one where they would be.
  size_t SlotOf(std::string_view bytes, uint64_t hash) const;
  int32_t RankOf(int32_t left, int32_t right) const;
  MergeSlot& SlotOf(uint64_t pair);
  void LoadSymbols(std::string_view word, Scratch& scratch) const;
  void MergeShort(Scratch& scratch, std::vector<TokenId>& ids) const;
  void MergeLong(Scratch& scratch, std::vector<TokenId>& ids) const;

  std::string arena_;                       // the bytes of all tokens
  std::vector<Span> spans_;                 // of each token, in arena_
  std::vector<TokenSlot> token_table_;      // open addressing by the hash of the bytes
  std::vector<MergeSlot> merge_table_;      // open addressing by pair
  std::vector<int32_t> merged_;             // by rank: the id that the merge makes
  std::vector<bool> made_;                  // by id: not just an added token, but BPE's too
  std::array<int32_t, 256> byte_tokens_{};  // kNoToken: the vocabulary lacks this byte
  std::optional<TokenId> unknown_;
  bool ignore_merges_ = false;
};

}  // namespace spry
