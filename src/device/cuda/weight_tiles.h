// How 16-bit matrices lie on the card: in tiles of 16 outputs x 32 columns, two A operands of mma
// (mma.cuh) one after the other, so that a warp reads each as 32 times 16 bytes in a row. Which
// columns an operand holds is ours to choose, as long as B follows: lane t of a quad has columns
// [8t, 8t + 4) in the first operand and [8t + 4, 8t + 8) in the second, so that B of both is one
// 16-byte read of a row. Tiles of one group of 16 outputs follow each other along K. Matrices whose
// sides are not multiples of a tile's, vectors and f32 matrices stay row by row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/ids.h"
#include "device/cuda/kernel.h"
#include "tensor/dtype.h"

namespace spry::cuda {

inline constexpr int kTileOutputs = 16;
inline constexpr int kTileDepth = 32;
inline constexpr int kTileElements = kTileOutputs * kTileDepth;

inline bool IsTiled(DType dtype, int64_t rows, int64_t columns) {
  return (dtype == DType::kF16 || dtype == DType::kBF16) && rows % kTileOutputs == 0 &&
         columns % kTileDepth == 0;
}

// Where element (n, k) of a tiled matrix of `columns` lies, in elements.
SPRY_HOST_DEVICE inline int64_t TiledOffset(int64_t n, int64_t k, int64_t columns) {
  const int64_t tile = n / kTileOutputs * (columns / kTileDepth) + k / kTileDepth;
  const int64_t row = n % kTileOutputs;
  const int64_t half = k % 8 / 4;
  const int64_t lane = row % 8 * 4 + k % kTileDepth / 8;
  const int64_t pair = row / 8 + k % 4 / 2 * 2;
  return tile * kTileElements + half * (kTileElements / 2) + lane * 8 + pair * 2 + k % 2;
}

SPRY_HOST_DEVICE inline int64_t WeightOffset(const WeightMatrix& weight, int64_t n, int64_t k) {
  return weight.tiled ? TiledOffset(n, k, weight.columns) : n * weight.columns + k;
}

// Puts `rows` rows that lie one after another at `source` into the tiles of `target`, as its rows
// [first_row, first_row + rows). Both are on the card; elements are 2 bytes.
void TileRows(const std::byte* source, int64_t first_row, int64_t rows, int64_t columns,
              std::byte* target, cudaStream_t stream);

}  // namespace spry::cuda
