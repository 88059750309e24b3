// linear for prompts: a block makes 128 outputs of 64 rows, each warp 16 outputs over all of K.
// The norm before it is a kernel of its own.
#pragma once

#include <cstdint>

#include "device/cuda/linear_tile.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/overlap.cuh"

namespace spry::cuda {

inline constexpr int kBlockRows = 64;
inline constexpr int kBlockTokenTiles = kBlockRows / kMmaTokens;
inline constexpr int kPassTiles = 2;  // of K, in shared memory at a time
inline constexpr int kPassDepth = kPassTiles * kTileDepth;

// Columns [k, k + kPassDepth) of rows [first, first + kBlockRows).
template <typename T>
__device__ void FetchPass(const Matrix& x, int32_t first, int32_t num_rows, int32_t k,
                          int32_t depth, T (*rows)[SharedStride(kPassDepth)]) {
  constexpr int kPieces = kPassDepth / 8;  // of 16 bytes a row
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kPieces; i += kLinearThreads) {
    const int r = i / kPieces;
    const int column = k + i % kPieces * 8;
    const bool inside = first + r < num_rows && column < depth;
    const T* from =
        reinterpret_cast<const T*>(x.data) + (inside ? (first + r) * x.stride + column : 0);
    CopyAsync16(&rows[r][i % kPieces * 8], from, inside);
  }
  asm volatile("cp.async.commit_group;");
}

template <typename T, typename Y>
__global__ void __launch_bounds__(kLinearThreads)
    ManyRowsKernel(const __grid_constant__ MmaLinearArgs args, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t num_rows = NumRows(args.x.rows, state);
  const int32_t first_row = static_cast<int32_t>(blockIdx.y) * kBlockRows;
  if (first_row >= num_rows) return;
  __shared__ __align__(16) T passes[2][kBlockRows][SharedStride(kPassDepth)];
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  const int tiles = args.depth / kTileDepth;
  const int per_segment = SegmentTiles(args.depth);
  const int32_t output = static_cast<int32_t>(blockIdx.x) * kLinearWarps + warp;
  const bool works = output < args.outputs / kMmaOutputs;
  const uint4* weight = args.weight + (works ? int64_t{output} * tiles * kTileQuads : 0) + lane;
  TileOfWeights next[kPassTiles];
  const auto fetch_weights = [&](int first) {
#pragma unroll
    for (int i = 0; i < kPassTiles; ++i) {
      if (first + i < tiles) next[i].Load(weight + (first + i) * kTileQuads);
    }
  };
  float totals[kBlockTokenTiles][4] = {};
  float sums[kBlockTokenTiles][4] = {};
  bool first_segment = true;
  FetchPass(args.x, first_row, num_rows, 0, args.depth, passes[0]);
  fetch_weights(0);
  int left = per_segment;  // tiles of this segment
  for (int first = 0; first < tiles; first += kPassTiles) {
    const int buffer = first / kPassTiles % 2;
    if (first + kPassTiles < tiles) {
      FetchPass(args.x, first_row, num_rows, (first + kPassTiles) * kTileDepth, args.depth,
                passes[1 - buffer]);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    TileOfWeights now[kPassTiles];
#pragma unroll
    for (int i = 0; i < kPassTiles; ++i) now[i] = next[i];
    fetch_weights(first + kPassTiles);
#pragma unroll
    for (int i = 0; i < kPassTiles; ++i) {
      if (first + i >= tiles) break;
#pragma unroll
      for (int j = 0; j < kBlockTokenTiles; ++j) {
        const T* row = passes[buffer][j * kMmaTokens + g] + i * kTileDepth + t * 8;
        AddTile<T>(sums[j], now[i], LoadB(row));
      }
      if (--left != 0 && first + i + 1 != tiles) continue;
      left = per_segment;
      EndSegment(totals, sums, first_segment);
      first_segment = false;
    }
    __syncthreads();
  }
  if (!works) return;
  StoreTotals<Y>(args, totals, first_row, num_rows, output * kMmaOutputs);
}

template <typename T, int kChunks>
__global__ void __launch_bounds__(kLinearThreads)
    NormRowsKernel(const __grid_constant__ MmaLinearArgs args, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t r = static_cast<int32_t>(blockIdx.x) * kLinearWarps +
                    static_cast<int32_t>(threadIdx.x) / kWarpThreads;
  if (r >= NumRows(args.x.rows, state)) return;
  RowChunks<kChunks> row[1];
  row[0].Load(reinterpret_cast<const T*>(args.x.data) + r * args.x.stride, args.depth);
  T* y = reinterpret_cast<T*>(args.normed.data) + r * args.normed.stride;
  NormalizeRows<1>(args.norm, row, y, /*stride=*/0, args.depth, [&](int, int32_t first) {
    NormScale scale;
    scale.Load(args.norm, first);
    return scale;
  });
}

}  // namespace spry::cuda
