// linear for many outputs of few rows, as the last one of a decode step: each warp makes 16 outputs
// over all of K, and no warp waits for another once the rows lie in shared memory, so that the
// weights stream at the rate of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/draw.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/weight_ring.cuh"

namespace spry::cuda {

inline constexpr int kMaxWideRows = 16;
inline constexpr int64_t kWideRowBytes = 72 << 10;  // of rows in shared memory

// kNormChunks: of a row that is normed on the way in (normalize.cuh); 0: none.
template <int kTokenTiles_, int kNormChunks_>
struct WideShape {
  static constexpr int kTokenTiles = kTokenTiles_;
  static constexpr int kNormChunks = kNormChunks_;
  static constexpr int kRows = kTokenTiles * kMmaTokens;
  // Long rows leave room for one block in a multiprocessor: then each warp has more on its way.
  static constexpr bool kLongRows = kNormChunks > 4;
  static constexpr int kAhead = kLongRows ? 16 : 6;
  static constexpr int kMinBlocks = kLongRows ? 1 : 3;
  using Ring = WeightRing<kAhead>;
  static constexpr int64_t kRingBytes = kLinearWarps * Ring::kBytes;
};

// Rows [0, num_rows) of x to shared memory, normed or not. A row that is not there stays as it is:
// its results are not stored.
template <typename Shape, typename T>
__device__ void FetchRows(const MmaLinearArgs& args, int32_t num_rows, T* rows) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  for (int r = warp; r < num_rows; r += kLinearWarps) {
    const T* x = reinterpret_cast<const T*>(args.x.data) + r * args.x.stride;
    T* y = rows + r * SharedStride(args.depth);
    if constexpr (Shape::kNormChunks > 0) {
      NormalizeRow<Shape::kNormChunks>(args.norm, x, y, args.depth);
    } else {
      for (int32_t k = lane * 8; k < args.depth; k += kChunkElements) {
        *reinterpret_cast<uint4*>(y + k) = *reinterpret_cast<const uint4*>(x + k);
      }
    }
  }
}

// What a lane has seen of its rows: 2t and 2t + 1 of each token tile.
template <typename Shape>
struct WideDraws {
  BestDraw best[Shape::kTokenTiles][2];

  __device__ void See(const RowDraw* rows, const float (&logits)[Shape::kTokenTiles][4],
                      int32_t first_output) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int32_t id = first_output + lane / 4;
#pragma unroll
    for (int j = 0; j < Shape::kTokenTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const RowDraw row = rows[j * kMmaTokens + lane % 4 * 2 + e];
        if (!row.wanted()) continue;
        best[j][e].See(row, logits[j][e], id);
        best[j][e].See(row, logits[j][e + 2], id + 8);
      }
    }
  }

  // Joins the block; every thread calls it.
  __device__ void Leave(const DrawArgs& args, const RowDraw* rows) const {
    __shared__ uint64_t joined[kLinearWarps][Shape::kRows];
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
    for (int j = 0; j < Shape::kTokenTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        uint64_t packed = best[j][e].Packed();
#pragma unroll
        for (int step = 4; step < kWarpThreads; step *= 2) {
          packed = max(packed, __shfl_xor_sync(0xffffffffu, packed, step));
        }
        if (lane < 4) joined[warp][j * kMmaTokens + lane * 2 + e] = packed;
      }
    }
    __syncthreads();
    const int r = static_cast<int>(threadIdx.x);
    if (r >= Shape::kRows || !rows[r].wanted()) return;
    uint64_t packed = joined[0][r];
#pragma unroll
    for (int w = 1; w < kLinearWarps; ++w) packed = max(packed, joined[w][r]);
    LeaveBest(args, r, packed);
  }
};

template <typename T, typename Y, typename Shape>
__global__ void __launch_bounds__(kLinearThreads, Shape::kMinBlocks)
    WideKernel(const __grid_constant__ MmaLinearArgs args, int32_t num_rows) {
  constexpr int kTokenTiles = Shape::kTokenTiles;
  constexpr bool kMayDraw = std::is_same_v<Y, float>;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int tiles = args.depth / kTileDepth;
  const int per_segment = SegmentTiles(args.depth);
  const int outputs = args.outputs / kMmaOutputs;
  const int all_warps = static_cast<int>(gridDim.x) * kLinearWarps;
  const int first = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  extern __shared__ __align__(16) std::byte shared[];
  typename Shape::Ring ring(
      {.first = args.weight + int64_t{first} * tiles * kTileQuads,
       .num_runs = first < outputs ? (outputs - first + all_warps - 1) / all_warps : 0,
       .run_tiles = tiles,
       .next_run = int64_t{all_warps} * tiles * kTileQuads},
      shared + warp * Shape::Ring::kBytes);
  T* rows = reinterpret_cast<T*>(shared + Shape::kRingBytes);
  __shared__ RowDraw draws[kMayDraw ? Shape::kRows : 1];
  const bool drawing = kMayDraw && args.draw.best != nullptr;
  const int r = kLinearThreads - 1 - static_cast<int>(threadIdx.x);
  if (drawing && r < Shape::kRows) draws[r] = RowDraw::Of(args.draw, r);
  AwaitPrevious();
  FetchRows<Shape>(args, num_rows, rows);
  __syncthreads();

  WideDraws<Shape> seen;
  const T* b = rows + lane / 4 * SharedStride(args.depth) + lane % 4 * 8;
  for (int output = first; output < outputs; output += all_warps) {
    float totals[kTokenTiles][4] = {};
    float sums[kTokenTiles][4] = {};
    bool first_segment = true;
    int left = per_segment;  // tiles of this segment
    for (int i = 0; i < tiles; ++i) {
      const TileOfWeights a = ring.Take();
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        AddTile<T>(sums[j], a,
                   LoadB(b + j * kMmaTokens * SharedStride(args.depth) + i * kTileDepth));
      }
      ring.Fetch();
      if (--left != 0 && i + 1 != tiles) continue;
      left = per_segment;
      EndSegment(totals, sums, first_segment);
      first_segment = false;
    }
    StoreTotals<Y>(args, totals, /*first_row=*/0, num_rows, output * kMmaOutputs);
    if constexpr (kMayDraw) {
      if (drawing) seen.See(draws, totals, output * kMmaOutputs);
    }
  }
  if constexpr (kMayDraw) {
    if (drawing) seen.Leave(args.draw, draws);
  }
}

// Enough outputs for every warp of the card, and rows that fit.
inline bool IsWide(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  const int32_t padded = CeilDiv(rows, kMmaTokens) * kMmaTokens;
  return rows <= kMaxWideRows && args.outputs / kMmaOutputs >= context.processors * kLinearWarps &&
         int64_t{padded} * SharedStride(args.depth) * 2 <= kWideRowBytes;
}

template <typename T, typename Y, typename Shape>
void LaunchWideShape(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  constexpr auto kKernel = WideKernel<T, Y, Shape>;
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(Shape::kRingBytes + kWideRowBytes));
  const int64_t row_bytes = int64_t{Shape::kRows} * SharedStride(args.depth) * sizeof(T);
  LaunchOverlapped(context,
                   {.blocks = dim3(std::min(CeilDiv(args.outputs / kMmaOutputs, kLinearWarps),
                                            context.processors * Shape::kMinBlocks)),
                    .threads = kLinearThreads,
                    .shared_bytes = static_cast<size_t>(Shape::kRingBytes + row_bytes)},
                   kKernel, args, rows);
}

template <typename T, typename Y, int kTokenTiles>
void LaunchWideOf(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (args.norm.kind == NormKind::kNone) {
    return LaunchWideShape<T, Y, WideShape<kTokenTiles, 0>>(args, rows, context);
  }
  if (args.depth <= 4 * kChunkElements) {
    return LaunchWideShape<T, Y, WideShape<kTokenTiles, 4>>(args, rows, context);
  }
  LaunchWideShape<T, Y, WideShape<kTokenTiles, kMaxRowChunks>>(args, rows, context);
}

template <typename T, typename Y>
void LaunchWide(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (rows <= kMmaTokens) return LaunchWideOf<T, Y, 1>(args, rows, context);
  LaunchWideOf<T, Y, 2>(args, rows, context);
}

}  // namespace spry::cuda
