// AMX: eight tile registers of at most 16 rows of 64 bytes. A product adds A B to C, where
//   C  M rows of up to 16 f32 (or int32)
//   A  M rows of up to 32 bf16 (or 64 bytes), K ascending
//   B  a row for each pair of k (or for each four): up to 16 columns x (w[2j], w[2j + 1])
// which is how panels of weights and tiles of keys lie in memory, so that B is loaded as it is.
//
// An element of a bf16 product is c + (even + odd): two chains of fma that start at zero, over the
// first and over the second k of each pair, ascending; subnormals count as zero. (The manual leaves
// it open; tests/device_linear holds it.) A product takes about as many cycles as A or B has rows,
// whichever is more.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "device/cpu/simd/always_inline.h"

namespace spry {

inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;  // of a row

// The memory operand of ldtilecfg.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};  // by tile register
  uint8_t rows[16] = {};

  void Set(int tile, int tile_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(tile_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};

// Holds the tile registers of this thread in some shapes. A thread that holds them pays for them at
// every switch, so nobody holds them longer than a call.
class TileScope {
 public:
  SPRY_INLINE explicit TileScope(const TileShapes& shapes) { _tile_loadconfig(&shapes); }
  SPRY_INLINE ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

// Not the intrinsics: gcc moves their loads before the stores of what they load.
template <int kTile>
SPRY_INLINE void TileLoad(const void* p, int64_t stride) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
template <int kTile>
SPRY_INLINE void TileStore(void* p, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(p), "r"(stride) : "memory");
}
template <int kTile>
SPRY_INLINE void TileZero() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <int kSum, int kLeft, int kRight>
SPRY_INLINE void TileProduct() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kLeft), "i"(kRight));
}

}  // namespace spry
