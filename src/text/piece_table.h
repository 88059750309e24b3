// The pieces of a vocabulary in one block of memory, and the id of each by its bytes.
// Immutable once filled; threads may share one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace spry {

class PieceTable {
 public:
  static constexpr int32_t kNoToken = -1;

  // Room for `pieces`; refuses more than 2^31 of them or 4 GiB of text.
  static Result<PieceTable> WithRoomFor(const std::vector<std::string>& pieces);

  // Gives the next id to `bytes`; Find does not know it before Insert.
  void Append(std::string_view bytes);
  // Of two ids with the same bytes the one inserted first is found.
  void Insert(int32_t id);

  int32_t Find(std::string_view bytes) const;  // or kNoToken
  std::string_view operator[](int32_t id) const {
    const auto [begin, size] = spans_[id];
    return std::string_view(arena_).substr(begin, size);
  }
  int size() const { return static_cast<int>(spans_.size()); }

 private:
  struct Span {
    uint32_t begin;
    uint32_t size;
  };
  struct Slot {
    uint32_t hash = 0;  // the upper half; spares most looks at the bytes
    int32_t id = kNoToken;
  };
  PieceTable() = default;
  // The slot of `bytes`, or the free one where they would be.
  size_t SlotOf(std::string_view bytes, uint64_t hash) const;

  std::string arena_;
  std::vector<Span> spans_;
  std::vector<Slot> slots_;  // open addressing by the hash of the bytes
};

}  // namespace spry
