#include "text/byte_pieces.h"

namespace spry {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<uint8_t> BytePiece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return {};
  const int high = HexDigit(piece[3]);
  const int low = HexDigit(piece[4]);
  if (high < 0 || low < 0) return {};
  return static_cast<uint8_t>(high * 16 + low);
}

std::array<int32_t, 256> FindBytePieces(const std::vector<std::string>& pieces) {
  std::array<int32_t, 256> ids;
  ids.fill(-1);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto byte = BytePiece(pieces[i]);
    if (byte && ids[*byte] < 0) ids[*byte] = static_cast<int32_t>(i);
  }
  return ids;
}

}  // namespace spry
