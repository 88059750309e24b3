// How rows lie that a linear takes by bulk copies (linear_stream.cuh, linear_resident.cuh,
// linear_pipelined.cuh).
#pragma once

#include <cstdint>

#include "device/cuda/row_taker.h"
#include "device/cuda/warpgroup_mma.cuh"
#include "device/cuda/weight_tiles.h"

namespace spry::cuda {

inline constexpr int kPackedBlockBytes = 4 * kCoreBytes;  // 8 rows of a tile

// Columns [column, column + 8) of row `row` of eight, to the core matrices of their tile.
__device__ inline void PutPacked(std::byte* block, int row, int column, const uint4& bits) {
  auto* to = reinterpret_cast<uint32_t*>(block) + row * 4 + column % kTileDepth / 8;
  to[0] = bits.x;
  to[kCoreBytes / 4] = bits.y;
  to[kCoreBytes / 2] = bits.z;
  to[kCoreBytes / 4 * 3] = bits.w;
}

// Where rows go. Packed: groups of `eights` times 8 rows, in each the tiles
// of 32 along K, in each the eights, in each four core matrices (warpgroup_mma.cuh). Lane t of a
// quad has columns [8 t, 8 t + 8) of a tile (weight_tiles.h), two of them in each core matrix.
struct InputPlace {
  std::byte* data = nullptr;
  int64_t stride = 0;  // of rows that lie one by one, in elements
  int32_t eights = 0;  // 0: rows lie one by one
  int32_t tiles = 0;

  // Columns [column, column + 8) of a row.
  __device__ void Put(int32_t row, int32_t column, const uint4& bits) const {
    if (eights == 0) {
      *reinterpret_cast<uint4*>(data + (row * stride + column) * 2) = bits;
      return;
    }
    PutPacked(data + Block(row, column) * kPackedBlockBytes, row % 8, column, bits);
  }
  // Where the elements of a row from `column` on lie, a multiple of kTileDepth: element i at
  // Index(i).
  template <typename T>
  __device__ T* RowFrom(int32_t row, int32_t column) const {
    if (eights == 0) return reinterpret_cast<T*>(data) + row * stride + column;
    return reinterpret_cast<T*>(data + Block(row, column) * kPackedBlockBytes + row % 8 * 16);
  }
  __device__ int32_t Index(int32_t i) const {
    if (eights == 0) return i;
    return i / kTileDepth * (eights * kPackedBlockBytes / 2) + i % 8 / 2 * (kCoreBytes / 2) +
           i % kTileDepth / 8 * 2 + i % 2;
  }
  // How far Index() goes from an element to the one 8 further on in a run of 32.
  __device__ int32_t Apart() const { return eights == 0 ? 8 : 2; }

 private:
  __device__ int64_t Block(int32_t row, int32_t column) const {
    const int32_t eight = row / 8;
    return (int64_t{eight / eights} * tiles + column / kTileDepth) * eights + eight % eights;
  }
};

// Where what an op makes goes: to its taker, or to y.
inline InputPlace PlaceOf(const RowTaker& taker, const Matrix& y, int32_t rows,
                          const LaunchContext& context) {
  const int32_t eights = taker.Eights(rows, context);
  if (eights == 0) return {.data = y.data, .stride = y.stride};
  return {.data = taker.packed, .eights = eights, .tiles = taker.depth / kTileDepth};
}

}  // namespace spry::cuda
