// How 16-bit matrices lie on the card: in 16 x 16 tiles whose 512 bytes are in the order of mma's A
// operand (mma.cuh), so that a warp reads a tile as 32 times 16 bytes in a row. Tiles of one group
// of 16 outputs follow each other along K. Matrices whose sides are not multiples of 16, vectors
// and f32 matrices stay row by row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/ids.h"
#include "device/cuda/kernel.h"
#include "tensor/dtype.h"

namespace spry::cuda {

inline constexpr int kTileSide = 16;
inline constexpr int kTileElements = kTileSide * kTileSide;

inline bool IsTiled(DType dtype, int64_t rows, int64_t columns) {
  return (dtype == DType::kF16 || dtype == DType::kBF16) && columns > 1 && rows % kTileSide == 0 &&
         columns % kTileSide == 0;
}

// Where element (n, k) of a tiled matrix of `columns` lies, in elements.
SPRY_HOST_DEVICE inline int64_t TiledOffset(int64_t n, int64_t k, int64_t columns) {
  const int64_t tile = n / kTileSide * (columns / kTileSide) + k / kTileSide;
  const int64_t row = n % kTileSide;
  const int64_t column = k % kTileSide;
  const int64_t lane = row % 8 * 4 + column % 8 / 2;
  const int64_t pair = row / 8 + column / 8 * 2;
  return tile * kTileElements + lane * 8 + pair * 2 + column % 2;
}

SPRY_HOST_DEVICE inline int64_t WeightOffset(const WeightMatrix& weight, int64_t n, int64_t k) {
  return weight.tiled ? TiledOffset(n, k, weight.columns) : n * weight.columns + k;
}

// Puts `rows` rows that lie one after another at `source` into the tiles of `target`, as its rows
// [first_row, first_row + rows). Both are on the card; elements are 2 bytes.
void TileRows(const std::byte* source, int64_t first_row, int64_t rows, int64_t columns,
              std::byte* target, cudaStream_t stream);

}  // namespace spry::cuda
