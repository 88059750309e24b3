// linear on Hopper's warpgroup products, for many rows. A block keeps its rows of x in shared
// memory and makes tiles of 64 outputs, one a warpgroup at a time, each over all of K: no sum
// leaves its thread before it is complete. Weights go to the registers of the one warp that uses
// them, some batches ahead, so there is no barrier inside a tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/linear_draws.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/warpgroup_mma.cuh"

namespace spry::cuda {

inline constexpr int kBatch = 3;  // tiles of K whose weights a warp fetches at a time
inline constexpr int kBatchesAhead = 2;
using BatchOfWeights = TileOfWeights[kBatch];

// kTokens: rows of a block. kSplit: the kSegments blocks of a cluster share K, a segment each.
template <int kTokens_, int kWarpgroups_, bool kSplit_ = false>
struct WarpgroupShape {
  static constexpr int kTokens = kTokens_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr bool kSplit = kSplit_;
  static constexpr int kThreads = kWarpgroups * kWarpgroupThreads;
  static constexpr int kWarps = kWarpgroups * kWarpgroupWarps;
  static constexpr int kOutputs = kWarpgroups * kWarpgroupOutputs;
  static constexpr int kSums = kTokens / 2;       // of a thread
  static constexpr int kEights = kTokens / 8;     // of tokens
  static constexpr int kSixteens = kTokens / 16;  // of tokens, as they are stored
  static constexpr int kMinBlocks = kSplit ? 2 : 1;
};

struct WarpgroupCounts {
  int32_t rows = 0;         // of the bucket
  bool exact = false;       // rows beyond the step's true count are left out
  int32_t outputs = 0;      // tiles of 64, the last maybe in part
  int32_t all_depth = 0;    // tiles of 32
  int32_t depth = 0;        // of a block
  int32_t per_segment = 0;  // of depth
};

// x in shared memory: eights of tokens, in each the tiles of 32 along K, in each four core matrices
// (warpgroup_mma.cuh). Lane t of a quad has columns [8 t, 8 t + 8) of a tile (weight_tiles.h): two
// of them in each core matrix. The padding lets a warp store 8 tiles of one row, or one tile of 8
// rows, through different banks.
inline constexpr int kStagedTileBytes = 4 * kCoreBytes + 16;

template <typename Shape>
__host__ __device__ constexpr int64_t StagedBytes(int tiles) {
  return int64_t{Shape::kEights} * tiles * kStagedTileBytes;
}

// Where a warp turns 16 tokens of its 16 outputs around.
inline constexpr int kTurnStride = kMmaOutputs + 4;
inline constexpr int kTurnBytes = 16 * kTurnStride * sizeof(float);
// A block's part of what its cluster adds: [token][output], f32.
template <typename Shape>
inline constexpr int kPartStride = Shape::kOutputs + 4;
// Of the 227 KiB of a multiprocessor.
inline constexpr int64_t kMostWarpgroupBytes = 222 << 10;

template <typename Shape>
constexpr int64_t WarpgroupSharedBytes(int tiles) {
  return StagedBytes<Shape>(tiles) + (Shape::kSplit ? Shape::kTokens * kPartStride<Shape> * 4
                                                    : Shape::kWarps * int64_t{kTurnBytes});
}

// `count` tiles of K from `first_tile` on of the block's rows, as core matrices. A row beyond the
// last is zeros: many loads of one line would come from one place. Blocks that share rows begin at
// different ones, so as not to ask for the same lines at once.
template <typename Shape, typename T>
__device__ void StageRows(const Matrix& x, int32_t first_row, int32_t num_rows, int first_tile,
                          int count, std::byte* staged) {
  constexpr int kTogether = 12;  // a lane's loads on their way
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const T* from = reinterpret_cast<const T*>(x.data) + first_tile * kTileDepth + lane % 4 * 8;
#pragma unroll 1
  for (int first = warp; first < count * Shape::kEights; first += kTogether * Shape::kWarps) {
    uint4 words[kTogether];
    const auto for_tiles = [&](const auto& fn) __attribute__((always_inline)) {
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int at = first + i * Shape::kWarps;
        if (at >= count * Shape::kEights) break;
        fn(words[i], (at + static_cast<int>(blockIdx.y)) % Shape::kEights, at / Shape::kEights);
      }
    };
    for_tiles([&](uint4 & bits, int eight, int tile) __attribute__((always_inline)) {
      const int32_t row = first_row + eight * 8 + lane / 4;
      bits = make_uint4(0, 0, 0, 0);
      if (row < num_rows) {
        bits = *reinterpret_cast<const uint4*>(from + row * x.stride + tile * kTileDepth);
      }
    });
    for_tiles([&](const uint4& bits, int eight, int tile) __attribute__((always_inline)) {
      auto* to =
          reinterpret_cast<uint32_t*>(staged + (eight * count + tile) * kStagedTileBytes) + lane;
      to[0] = bits.x;
      to[kCoreBytes / 4] = bits.y;
      to[kCoreBytes / 2] = bits.z;
      to[kCoreBytes / 4 * 3] = bits.w;
    });
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The weights of one warp: its tiles of 16 outputs in turn, each along K, a batch at a time. from:
// its first; next_tile: from one tile of outputs to the next; tiles_left: after the first.
struct WeightsInRegisters {
  const uint4* next;
  int64_t to_next_tile;  // from the end of one
  int batches;           // of a tile
  int left;              // of this tile
  int tiles_left;        // after this one
  BatchOfWeights ahead[kBatchesAhead];

  __device__ WeightsInRegisters(const uint4* from, int64_t next_tile, int tiles_left, int depth)
      : next(from + threadIdx.x % kWarpThreads),
        to_next_tile(next_tile - depth * kTileQuads),
        batches(depth / kBatch),
        left(batches),
        tiles_left(tiles_left) {
#pragma unroll
    for (int i = 0; i < kBatchesAhead; ++i) Fetch(ahead[i]);
  }
  // fn(batch, its first tile of K) for the batches of the next tile of outputs.
  template <typename Fn>
  __device__ void ForBatches(int depth, const Fn& fn) {
#pragma unroll 1
    for (int at = 0; at < depth; at += kBatchesAhead * kBatch) {
#pragma unroll
      for (int i = 0; i < kBatchesAhead; ++i) {
        if (at + i * kBatch >= depth) break;
        fn(ahead[i], at + i * kBatch);
        Fetch(ahead[i]);
      }
    }
  }

 private:
  __device__ void Fetch(BatchOfWeights& a) {
    if (left == 0) {
      if (tiles_left == 0) return;
      --tiles_left;
      next += to_next_tile;
      left = batches;
    }
    --left;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) a[i].Load(next + i * kTileQuads);
    next += kBatch * kTileQuads;
  }
};

// Stores a warp's 16 outputs, from n on, of all the block's tokens.
template <typename Shape, typename Y>
__device__ void StoreTile(const MmaLinearArgs& args, const float (&sums)[Shape::kSums],
                          float (*turn)[kTurnStride], int32_t first_row, int32_t num_rows,
                          int32_t n, const BlockDraws<Y, Shape>& draws) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int token = lane / 2;
  const int32_t mine = n + lane % 2 * 8;
  float bias[8] = {};
  if (args.bias != nullptr) LoadFloats8(args.bias + mine, bias);
  OutputRun<Y> next;
  next.LoadResidual(args, min(first_row + token, num_rows - 1), mine);
#pragma unroll
  for (int s = 0; s < Shape::kSixteens; ++s) {
    const int32_t row = first_row + s * 16 + token;
    const OutputRun<Y> run = next;
    if (s + 1 < Shape::kSixteens) next.LoadResidual(args, min(row + 16, num_rows - 1), mine);
    PutSums<2, kTurnStride>(sums + s * 8, turn[0]);
    __syncwarp();
    float values[8];
    LoadFloats8(&turn[token][lane % 2 * 8], values);
    if (row < num_rows) {
      run.Store(args, bias, values, row, mine);
      if (draws.On(args.draw)) draws.See(s * 16 + token, values, mine);
    }
    __syncwarp();
  }
}

#if SPRY_HAS_WARPGROUP_MMA

// A cluster's parts of a tile of outputs become one: every block leaves its segment in its own
// shared memory and adds all segments of its share of the tokens.
template <typename Shape, typename Y>
__device__ void StoreShare(const MmaLinearArgs& args, const float (&sums)[Shape::kSums],
                           float* part, int32_t first_row, int32_t num_rows, int32_t first_output) {
  constexpr int kStride = kPartStride<Shape>;
  constexpr int kShare = Shape::kTokens / kSegments;
  constexpr int kRunsOfRow = Shape::kOutputs / 4;
  const int thread = static_cast<int>(threadIdx.x);
  PutSums<Shape::kEights, kStride>(sums, part + thread / kWarpThreads * kMmaOutputs);
  const int token = static_cast<int>(blockIdx.z) * kShare + thread / kRunsOfRow;
  const int column = thread % kRunsOfRow * 4;
  const int32_t row = first_row + token;
  const int32_t n = first_output + column;
  const bool mine = thread < kShare * kRunsOfRow && row < num_rows && n < args.outputs;
  float bias[4] = {};
  float residual[4] = {};
  if (mine) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      bias[e] = BiasAt(args, n + e);
      residual[e] = LoadResidual<Y>(args, row, n + e);
    }
  }
  ClusterBarrier();
  if (mine) {
    float4 parts[kSegments];
#pragma unroll
    for (int s = 0; s < kSegments; ++s) {
      parts[s] = LoadFromBlock(part + token * kStride + column, s);
    }
    float total[4] = {parts[0].x, parts[0].y, parts[0].z, parts[0].w};
#pragma unroll
    for (int s = 1; s < kSegments; ++s) {
      total[0] += parts[s].x;
      total[1] += parts[s].y;
      total[2] += parts[s].z;
      total[3] += parts[s].w;
    }
    FinishSums(args, bias, residual, total);
    Y values[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) values[e] = FromFloat<Y>(total[e]);
    using Bits = std::conditional_t<sizeof(Y) == 4, uint4, uint2>;
    *reinterpret_cast<Bits*>(OutputAt<Y>(args, row, n)) = *reinterpret_cast<const Bits*>(values);
  }
  ClusterBarrier();  // nobody leaves while others read
}

// One batch: tiles [0, kBatch) of the K at `operand`, `kApart` bytes apart. starts: of a segment.
template <int kApart, typename T, int kSums>
__device__ void MultiplyBatch(float (&sums)[kSums], const BatchOfWeights& a, uint32_t operand,
                              uint32_t group_bytes, bool starts) {
  WarpgroupArrive();
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const uint32_t at = operand + i * kApart;
    WarpgroupMma(T{}, sums, a[i].first, OperandAt(at, group_bytes), i > 0 || !starts);
    WarpgroupMma(T{}, sums, a[i].second, OperandAt(at + 2 * kCoreBytes, group_bytes), 1);
  }
  WarpgroupCommit();
  WarpgroupWait();
}

#endif

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kMinBlocks)
    WarpgroupKernel(const __grid_constant__ MmaLinearArgs args,
                    const __grid_constant__ WarpgroupCounts counts, const StepState state) {
#if SPRY_HAS_WARPGROUP_MMA
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * Shape::kTokens;
  const int step = static_cast<int>(gridDim.y) * Shape::kWarpgroups;
  const int rounds = (counts.outputs + step - 1) / step;
  const int first = static_cast<int>(blockIdx.y) * Shape::kWarpgroups;  // tile of 64
  extern __shared__ __align__(128) std::byte staged[];
  std::byte* beside = staged + StagedBytes<Shape>(counts.depth);
  int tile = first + warp / kWarpgroupWarps;
  const int32_t last = args.outputs / kMmaOutputs - 1;  // tile of 16
  const int quarter = warp % kWarpgroupWarps;
  // A warp beyond the last output makes it again, for nobody.
  const int32_t begin = min(tile * kWarpgroupWarps + quarter, last);
  const int first_tile = static_cast<int>(blockIdx.z) * counts.depth;  // of K
  const uint4* from = args.weight + (begin * int64_t{counts.all_depth} + first_tile) * kTileQuads;
  const int64_t next_tile = int64_t{step} * kWarpgroupWarps * counts.all_depth * kTileQuads;
  const int tiles_left = (last - begin) / (step * kWarpgroupWarps);
  WeightsInRegisters weights(from, next_tile, tiles_left, counts.depth);
  AwaitPrevious();
  int32_t num_rows = counts.rows;
  if (counts.exact) {
    num_rows = NumRows(args.x.rows, state);
    if (first_row >= num_rows) return;
  }

  const uint32_t group_bytes = counts.depth * kStagedTileBytes;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(staged));
  StageRows<Shape, T>(args.x, first_row, num_rows, first_tile, counts.depth, staged);
  __syncthreads();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round, tile += step) {
    float totals[Shape::kSums] = {};
    float sums[Shape::kSums] = {};
    int left = counts.per_segment;
    weights.ForBatches(counts.depth, [&](const BatchOfWeights& batch, int at) {
      MultiplyBatch<kStagedTileBytes, T>(sums, batch, base + at * kStagedTileBytes, group_bytes,
                                         left == counts.per_segment);
      left -= kBatch;
      if (Shape::kSplit || left > 0) return;
      left = counts.per_segment;
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) totals[i] += sums[i];
    });
    if constexpr (Shape::kSplit) {
      return StoreShare<Shape, T>(args, sums, reinterpret_cast<float*>(beside), first_row, num_rows,
                                  static_cast<int32_t>(blockIdx.y) * Shape::kOutputs);
    }
    const int32_t n = (tile * kWarpgroupWarps + quarter) * kMmaOutputs;
    if (n < args.outputs) {
      auto* turn = reinterpret_cast<float(*)[kTurnStride]>(beside + warp * kTurnBytes);
      StoreTile<Shape, T>(args, totals, turn, first_row, num_rows, n, BlockDraws<T, Shape>{});
    }
  }
#endif
}

// Whether the kernel serves this depth: whole batches in every segment, and rows that fit.
template <typename Shape>
constexpr bool ServesDepth(int32_t depth) {
  const int tiles = depth / kTileDepth;
  const int per_segment = SegmentTiles(depth);
  if (tiles % per_segment != 0 || per_segment % kBatch != 0) return false;
  if (!Shape::kSplit) {
    return tiles % (kBatchesAhead * kBatch) == 0 &&
           WarpgroupSharedBytes<Shape>(tiles) <= kMostWarpgroupBytes;
  }
  return tiles == per_segment * kSegments &&
         WarpgroupSharedBytes<Shape>(per_segment) <= kMostWarpgroupBytes;
}

template <typename T, typename Shape>
void LaunchWarpgroup(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                     const LaunchContext& context) {
  constexpr auto kKernel = WarpgroupKernel<T, Shape>;
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kMostWarpgroupBytes);
  const WarpgroupCounts counts{
      .rows = rows,
      .exact = rows > kMaxFewRows,
      .outputs = CeilDiv(args.outputs, kWarpgroupOutputs),
      .all_depth = args.depth / kTileDepth,
      .depth = Shape::kSplit ? SegmentTiles(args.depth) : args.depth / kTileDepth,
      .per_segment = SegmentTiles(args.depth)};
  const int32_t groups = CeilDiv(rows, Shape::kTokens);
  const int32_t tiles = CeilDiv(counts.outputs, Shape::kWarpgroups);
  // As many tiles for every block; a cluster makes one.
  const int32_t most = std::max(1, context.processors / groups);
  const int32_t blocks = Shape::kSplit ? tiles : CeilDiv(tiles, CeilDiv(tiles, most));
  const int cluster = Shape::kSplit ? kSegments : 1;
  LaunchOverlapped(context,
                   {.blocks = dim3(groups, blocks, cluster),
                    .threads = Shape::kThreads,
                    .shared_bytes = static_cast<size_t>(WarpgroupSharedBytes<Shape>(counts.depth)),
                    .cluster = cluster},
                   kKernel, args, counts, state);
}

}  // namespace spry::cuda
