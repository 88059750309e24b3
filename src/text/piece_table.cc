#include "text/piece_table.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <bit>

namespace spry {

Result<PieceTable> PieceTable::WithRoomFor(const std::vector<std::string>& pieces) {
  size_t total = 0;
  for (const std::string& piece : pieces) total += piece.size();
  if (pieces.size() > INT32_MAX || total > UINT32_MAX) {
    return InvalidArgument(
        fmt::format("vocabulary: {} tokens with {} bytes are too many", pieces.size(), total));
  }
  PieceTable table;
  table.arena_.reserve(total);
  table.spans_.reserve(pieces.size());
  table.slots_.resize(std::bit_ceil(pieces.size() * 2 + 16));
  return table;
}

void PieceTable::Append(std::string_view bytes) {
  spans_.push_back({static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(bytes.size())});
  arena_.append(bytes);
}

size_t PieceTable::SlotOf(std::string_view bytes, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto upper = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & mask;
  while (slots_[slot].id != kNoToken &&
         (slots_[slot].hash != upper || (*this)[slots_[slot].id] != bytes)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

void PieceTable::Insert(int32_t id) {
  const std::string_view bytes = (*this)[id];
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  Slot& slot = slots_[SlotOf(bytes, hash)];
  if (slot.id == kNoToken) slot = {static_cast<uint32_t>(hash >> 32), id};
}

int32_t PieceTable::Find(std::string_view bytes) const {
  return slots_[SlotOf(bytes, XXH3_64bits(bytes.data(), bytes.size()))].id;
}

}  // namespace spry
