// linear for many outputs of few rows, as the last one of a decode step: each warp makes 16 outputs
// over all of K, and no warp waits for another once the rows lie in shared memory, so that the
// weights stream at the rate of memory. They come through shared memory, a ring a warp: registers
// that wait for memory would be spilled by the norm, which waits for what it spills.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/draw.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/overlap.cuh"

namespace spry::cuda {

inline constexpr int kMaxWideRows = 16;
inline constexpr int64_t kWideRowBytes = 72 << 10;  // of rows in shared memory
// Tiles of a warp that are on their way: with 24 warps a multiprocessor, 144 KiB of weights.
inline constexpr int kWideAhead = 6;
inline constexpr int64_t kWideRingBytes = int64_t{kLinearWarps} * kWideAhead * kTileQuads * 16;

// kNormChunks: of a row that is normed on the way in (normalize.cuh); 0: none.
template <int kTokenTiles_, int kNormChunks_>
struct WideShape {
  static constexpr int kTokenTiles = kTokenTiles_;
  static constexpr int kNormChunks = kNormChunks_;
  static constexpr int kRows = kTokenTiles * kMmaTokens;
  static constexpr int kMinBlocks = kNormChunks > 4 ? 1 : 3;  // a long row's norm takes registers
};

// A warp's weights on their way. A lane reads only what it fetched itself, so nobody waits.
struct WeightRing {
  const uint4* from;  // this lane's of the first tile
  uint4* slots;       // this lane's
  int tiles;

  // Every call is one group of copies, also where there is no such tile.
  __device__ void Fetch(int tile) const {
    if (tile < tiles) {
      uint4* slot = slots + tile % kWideAhead * kTileQuads;
      const uint4* source = from + tile * kTileQuads;
      CopyAsync16(slot, source, true);
      CopyAsync16(slot + kWarpThreads, source + kWarpThreads, true);
    }
    asm volatile("cp.async.commit_group;");
  }
  // The oldest tile fetched.
  __device__ TileOfWeights Take(int tile) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kWideAhead - 1) : "memory");
    const uint4* slot = slots + tile % kWideAhead * kTileQuads;
    return {slot[0], slot[kWarpThreads]};
  }
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
      NormalizeRow<Shape::kNormChunks>(args.norm, x, y, args.depth, [&](int, int32_t first) {
        NormScale scale;
        scale.Load(args.norm, first);
        return scale;
      });
    } else {
      for (int32_t k = lane * 8; k < args.depth; k += kChunkElements) {
        *reinterpret_cast<uint4*>(y + k) = *reinterpret_cast<const uint4*>(x + k);
      }
    }
  }
}

// Scores the logits of a warp's tile and joins what the block's warps have seen.
template <typename Shape>
__device__ void DrawTile(const DrawArgs& args, const RowDraw* rows,
                         const float (&logits)[Shape::kTokenTiles][4], int32_t first_output,
                         bool works) {
  __shared__ uint64_t best[kLinearWarps][Shape::kRows];
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int j = 0; j < Shape::kTokenTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int r = j * kMmaTokens + 2 * t + e;
      const RowDraw row = rows[r];
      BestDraw seen;
      if (works && row.wanted()) {
        seen.See(row, logits[j][e], first_output + g);
        seen.See(row, logits[j][e + 2], first_output + g + 8);
      }
      uint64_t packed = seen.Packed();
#pragma unroll
      for (int step = 4; step < kWarpThreads; step *= 2) {
        packed = max(packed, __shfl_xor_sync(0xffffffffu, packed, step));
      }
      if (g == 0) best[warp][r] = works ? packed : 0;
    }
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x);
  if (r >= Shape::kRows || !rows[r].wanted()) return;
  uint64_t packed = best[0][r];
#pragma unroll
  for (int w = 1; w < kLinearWarps; ++w) packed = max(packed, best[w][r]);
  LeaveBest(args, r, packed);
}

template <typename T, typename Y, typename Shape>
__global__ void __launch_bounds__(kLinearThreads, Shape::kMinBlocks)
    WideKernel(const __grid_constant__ MmaLinearArgs args, int32_t num_rows) {
  constexpr int kTokenTiles = Shape::kTokenTiles;
  constexpr bool kMayDraw = std::is_same_v<Y, float>;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  const int tiles = args.depth / kTileDepth;
  const int per_segment = SegmentTiles(args.depth);
  const int output = static_cast<int>(blockIdx.x) * kLinearWarps + warp;
  const bool works = output < args.outputs / kMmaOutputs;
  extern __shared__ __align__(16) std::byte shared[];
  const WeightRing ring{
      .from = args.weight + lane + int64_t{output} * tiles * kTileQuads,
      .slots = reinterpret_cast<uint4*>(shared) + warp * kWideAhead * kTileQuads + lane,
      .tiles = works ? tiles : 0};
  for (int i = 0; i < kWideAhead; ++i) ring.Fetch(i);
  T* rows = reinterpret_cast<T*>(shared + kWideRingBytes);
  __shared__ RowDraw draws[kMayDraw ? Shape::kRows : 1];
  const bool drawing = kMayDraw && args.draw.best != nullptr;
  const int r = kLinearThreads - 1 - static_cast<int>(threadIdx.x);
  if (drawing && r < Shape::kRows) draws[r] = RowDraw::Of(args.draw, r);
  AwaitPrevious();
  FetchRows<Shape>(args, num_rows, rows);
  __syncthreads();

  float totals[kTokenTiles][4] = {};
  if (works) {
    const T* b = rows + g * SharedStride(args.depth) + t * 8;
    float sums[kTokenTiles][4] = {};
    bool first_segment = true;
    int left = per_segment;  // tiles of this segment
    for (int i = 0; i < tiles; ++i) {
      const TileOfWeights a = ring.Take(i);
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        AddTile<T>(sums[j], a,
                   LoadB(b + j * kMmaTokens * SharedStride(args.depth) + i * kTileDepth));
      }
      ring.Fetch(i + kWideAhead);
      if (--left != 0 && i + 1 != tiles) continue;
      left = per_segment;
      EndSegment(totals, sums, first_segment);
      first_segment = false;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int32_t n = output * kMmaOutputs + g + e / 2 * 8;
      const float bias = args.bias != nullptr ? args.bias[n] : 0.0f;
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        const int32_t row = j * kMmaTokens + 2 * t + e % 2;
        if (row >= num_rows) continue;
        const Y y = StoreSum<Y>(args, totals[j][e], bias, LoadResidual<Y>(args, row, n), row, n);
        if constexpr (kMayDraw) totals[j][e] = y;
      }
    }
  }
  if constexpr (kMayDraw) {
    if (drawing) DrawTile<Shape>(args.draw, draws, totals, output * kMmaOutputs, works);
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
                             static_cast<int>(kWideRingBytes + kWideRowBytes));
  const int64_t row_bytes = int64_t{Shape::kRows} * SharedStride(args.depth) * sizeof(T);
  LaunchOverlapped(context,
                   {.blocks = dim3(CeilDiv(args.outputs / kMmaOutputs, kLinearWarps)),
                    .threads = kLinearThreads,
                    .shared_bytes = static_cast<size_t>(kWideRingBytes + row_bytes)},
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
