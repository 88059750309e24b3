// Byte pieces: tokens "<0x00>" to "<0xFF>" that stand for bytes no other piece has.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spry {

// The byte that `piece` stands for, if it is spelled as one ("<0x0A>", capitals).
std::optional<uint8_t> BytePiece(std::string_view piece);

// The ids of the 256 byte pieces among `pieces`, -1 for one that is missing.
std::array<int32_t, 256> FindBytePieces(const std::vector<std::string>& pieces);

}  // namespace spry
