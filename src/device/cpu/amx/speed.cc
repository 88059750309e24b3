#include "device/cpu/amx/tiles.h"
#include "device/cpu/simd/speed_kernels.h"

namespace spry {
namespace {

// Two by two, as the products of large matrices go.
constexpr int kProducts = 4;
constexpr int64_t kTileProduct = kTileRows * kTileRows * kTileBytes / 4;  // of four bytes of k

TileShapes FullTiles() {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.Set(tile, kTileRows, kTileBytes);
  return shapes;
}

// All factors are zero.
template <typename Products>
SPRY_INLINE void Repeat(int64_t rounds, const Products& products) {
  static const TileShapes kShapes = FullTiles();
  const TileScope tiles(kShapes);
  TileZero<0>();
  TileZero<1>();
  TileZero<2>();
  TileZero<3>();
  TileZero<4>();
  TileZero<5>();
  TileZero<6>();
  TileZero<7>();
  for (int64_t i = 0; i < rounds; ++i) products();
}

void MultiplyPairs(int64_t rounds) {
  Repeat(
      rounds, []() __attribute__((always_inline)) {
        TileProduct<0, 4, 6>();
        TileProduct<1, 4, 7>();
        TileProduct<2, 5, 6>();
        TileProduct<3, 5, 7>();
      });
}

void MultiplyBytes(int64_t rounds) {
  Repeat(
      rounds, []() __attribute__((always_inline)) {
        _tile_dpbsud(0, 4, 6);
        _tile_dpbsud(1, 4, 7);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
      });
}

}  // namespace

ProductLoop AmxBf16Products() {
  return {"amx", "bfloat16", kProducts * kTileProduct * 2, MultiplyPairs};
}
ProductLoop AmxInt8Products() {
  return {"amx", "int8", kProducts * kTileProduct * 4, MultiplyBytes};
}

}  // namespace spry
