// linear on Hopper's warpgroup products, for many rows or many outputs. A block keeps its rows of x
// in shared memory and makes tiles of 64 outputs, one a warpgroup at a time, each over all of K: no
// sum leaves its thread before it is complete. Weights go straight to the registers of the one warp
// that uses them, some batches ahead, so there is no barrier inside a tile.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/draw.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/warpgroup_mma.cuh"

namespace spry::cuda {

inline constexpr int kBatch = 3;  // tiles of K whose weights a warp fetches at a time
inline constexpr int kBatchesAhead = 2;
using BatchOfWeights = TileOfWeights[kBatch];

// kTokens: rows of a block.
template <int kTokens_, int kWarpgroups_>
struct WarpgroupShape {
  static constexpr int kTokens = kTokens_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kThreads = kWarpgroups * kWarpgroupThreads;
  static constexpr int kWarps = kWarpgroups * kWarpgroupWarps;
  static constexpr int kSums = kTokens / 2;       // of a thread
  static constexpr int kEights = kTokens / 8;     // of tokens
  static constexpr int kSixteens = kTokens / 16;  // of tokens, as they are stored
};

struct WarpgroupCounts {
  int32_t rows = 0;         // of the bucket
  bool exact = false;       // rows beyond the step's true count are left out
  int32_t outputs = 0;      // tiles of 64, the last maybe in part
  int32_t depth = 0;        // tiles of 32
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
// A multiprocessor has 227 KiB, of which the draws take some.
inline constexpr int64_t kMostWarpgroupBytes = 222 << 10;

template <typename Shape>
constexpr int64_t WarpgroupSharedBytes(int tiles) {
  return StagedBytes<Shape>(tiles) + Shape::kWarps * kTurnBytes;
}

// Rows reach shared memory by 16 bytes, as they lie in memory, and are then put into core matrices
// in place: a warp turns around what it copied, 8 rows x 2 tiles at a time. Until then the 16 bytes
// of (row g, columns [8 t, 8 t + 8)) are here in their tile, which spreads copies over the banks.
__device__ inline int RawOffset(int g, int t) { return t * kCoreBytes + (g + 2 * t) % 8 * 16; }

// Calls fn(eight of rows, first tile) for the pairs of tiles [begin, end) that are this warp's.
// Blocks that share rows begin at different ones, so as not to ask for the same lines at once.
template <typename Shape, typename Fn>
__device__ void ForPairs(int begin, int end, const Fn& fn) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
#pragma unroll 2
  for (int i = begin * Shape::kEights + warp; i < end * Shape::kEights; i += Shape::kWarps) {
    fn((i + static_cast<int>(blockIdx.y)) % Shape::kEights, i / Shape::kEights * 2);
  }
}

// `count` tiles of K of the block's rows; count is even. A row beyond the last is
// zeros: many copies of one line would come from one place.
template <typename Shape, typename T>
__device__ void StageRows(const Matrix& x, int32_t first_row, int32_t num_rows, int count,
                          std::byte* staged) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int half = (count / 2 + 1) / 2;  // of the pairs: turned around while the rest comes
  const auto fetch = [&](int eight, int tile) {
    const int quad = lane % 8;  // 16 bytes of a row of two tiles
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int g = lane / 8 + i * 4;
      const int32_t row = first_row + eight * 8 + g;
      const bool inside = row < num_rows;
      CopyAsync16(
          staged + (eight * count + tile + quad / 4) * kStagedTileBytes + RawOffset(g, quad % 4),
          reinterpret_cast<const T*>(x.data) + (inside ? row * x.stride : 0) + tile * kTileDepth +
              quad * 8,
          inside);
    }
  };
  ForPairs<Shape>(0, half, fetch);
  asm volatile("cp.async.commit_group;");
  ForPairs<Shape>(half, count / 2, fetch);
  asm volatile("cp.async.commit_group;");
  const int g = lane / 4;
  const int t = lane % 4;
  const auto turn = [&](int eight, int tile) {
    std::byte* at = staged + (eight * count + tile) * kStagedTileBytes;
    uint4 words[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      words[i] = *reinterpret_cast<const uint4*>(at + i * kStagedTileBytes + RawOffset(g, t));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto* to = reinterpret_cast<uint32_t*>(at + i * kStagedTileBytes + g * 16 + t * 4);
      to[0] = words[i].x;
      to[kCoreBytes / 4] = words[i].y;
      to[kCoreBytes / 2] = words[i].z;
      to[kCoreBytes / 4 * 3] = words[i].w;
    }
  };
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncwarp();
  ForPairs<Shape>(0, half, turn);
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncwarp();
  ForPairs<Shape>(half, count / 2, turn);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The weights of one warp: its tiles of 16 outputs in turn, each along K, a batch at a time.
struct WeightStream {
  const uint4* next;
  int64_t to_next_tile;  // from the end of one
  int batches;           // of a tile
  int left;              // of this tile
  int tiles_left;        // after this one

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

// The draws of a block's rows; nothing unless y is f32.
template <typename Y, typename Shape>
struct BlockDraws {
  static constexpr bool kMayDraw = std::is_same_v<Y, float>;
  static constexpr int kRows = kMayDraw ? Shape::kTokens : 1;
  RowDraw* rows;             // [kRows], shared by the block
  unsigned long long* best;  // [kRows], shared by the block: found here or elsewhere

  __device__ static bool On(const DrawArgs& args) { return kMayDraw && args.best != nullptr; }
  // A barrier must follow.
  __device__ void Load(const DrawArgs& args, int32_t first_row) const {
    const int r = static_cast<int>(threadIdx.x);
    if (!On(args) || r >= kRows) return;
    rows[r] = RowDraw::Of(args, first_row + r);
    best[r] = 0;
  }
  // Logits of row r of the block. Most cannot be the best; for the others a loop, in which the
  // values go round.
  __device__ void See(int r, float (&logits)[8], int32_t first_id) const {
    const RowDraw row = rows[r];
    if (!row.wanted()) return;
    const unsigned long long known = best[r];
    BestDraw seen;
    seen.Learn(known);
    bool better = false;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float most =
          row.temperature > 0.0f ? ScoreCeiling(row, first_id + e, logits[e]) : logits[e];
      better |= !(most < seen.known);
    }
    if (!better) return;
#pragma unroll 1
    for (int e = 0; e < 8; ++e) {
      seen.See(row, logits[0], first_id + e);
#pragma unroll
      for (int i = 0; i + 1 < 8; ++i) logits[i] = logits[i + 1];
    }
    if (seen.Packed() > known) atomicMax(&best[r], seen.Packed());
  }
  // By a warpgroup, between tiles: early finds spare others most of their scores.
  __device__ void Exchange(const DrawArgs& args, int32_t first_row, bool tells) const {
    const int r = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    if (r >= kRows || !rows[r].wanted()) return;
    if (tells) LeaveBest(args, first_row + r, best[r]);
    atomicMax(&best[r], __ldcg(reinterpret_cast<unsigned long long*>(&args.best[first_row + r])));
  }
  // After a barrier.
  __device__ void Leave(const DrawArgs& args, int32_t first_row) const {
    const int r = static_cast<int>(threadIdx.x);
    if (r < kRows && rows[r].wanted()) LeaveBest(args, first_row + r, best[r]);
  }
};
// Rounds after which a block tells the others what it has found.
inline constexpr int kRoundsTold = 2;

// Stores a warp's 16 outputs, from n on, of all the block's tokens.
template <typename Shape, typename Y>
__device__ void StoreTile(const MmaLinearArgs& args, const float (&sums)[Shape::kSums],
                          float (*turn)[kTurnStride], int32_t first_row, int32_t num_rows,
                          int32_t n, const BlockDraws<Y, Shape>& draws) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
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
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float* d = sums + (s * 2 + j) * 4;
      float(*to)[kTurnStride] = turn + j * 8 + 2 * t;
      to[0][g] = d[0];
      to[1][g] = d[1];
      to[0][g + 8] = d[2];
      to[1][g + 8] = d[3];
    }
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

// One batch: tiles [0, kBatch) of the K at `operand`. starts: of a segment.
template <typename Shape, typename T>
__device__ void MultiplyBatch(float (&sums)[Shape::kSums], const BatchOfWeights& a,
                              uint32_t operand, uint32_t group_bytes, bool starts) {
  WarpgroupArrive();
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    const uint32_t at = operand + i * kStagedTileBytes;
    WarpgroupMma(T{}, sums, a[i].first, OperandAt(at, group_bytes), i > 0 || !starts);
    WarpgroupMma(T{}, sums, a[i].second, OperandAt(at + 2 * kCoreBytes, group_bytes), 1);
  }
  WarpgroupCommit();
  WarpgroupWait();
}

#endif

template <typename T, typename Y, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    WarpgroupKernel(const __grid_constant__ MmaLinearArgs args,
                    const __grid_constant__ WarpgroupCounts counts, const StepState state) {
#if SPRY_HAS_WARPGROUP_MMA
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * Shape::kTokens;
  const int step = static_cast<int>(gridDim.y) * Shape::kWarpgroups;
  int tile = static_cast<int>(blockIdx.y) * Shape::kWarpgroups + warp / kWarpgroupWarps;
  const int32_t last = args.outputs / kMmaOutputs - 1;  // tile of 16
  const int quarter = warp % kWarpgroupWarps;
  // A warp beyond the last output makes it again, for nobody.
  const int32_t begin = min(tile * kWarpgroupWarps + quarter, last);
  const int batches = counts.depth / kBatch;
  WeightStream weights{
      .next = args.weight + begin * int64_t{counts.depth} * kTileQuads + lane,
      .to_next_tile = (int64_t{step} * kWarpgroupWarps - 1) * counts.depth * kTileQuads,
      .batches = batches,
      .left = batches,
      .tiles_left = (last - begin) / (step * kWarpgroupWarps)};
  BatchOfWeights a[kBatchesAhead];
#pragma unroll
  for (int i = 0; i < kBatchesAhead; ++i) weights.Fetch(a[i]);
  PrefetchWeights(weights.next, counts.depth - kBatchesAhead * kBatch);
  __shared__ RowDraw drawn_rows[BlockDraws<Y, Shape>::kRows];
  __shared__ unsigned long long best_draws[BlockDraws<Y, Shape>::kRows];
  const BlockDraws<Y, Shape> draws{drawn_rows, best_draws};
  AwaitPrevious();
  draws.Load(args.draw, first_row);
  int32_t num_rows = counts.rows;
  if (counts.exact) {
    num_rows = NumRows(args.x.rows, state);
    if (first_row >= num_rows) return;
  }

  extern __shared__ __align__(128) std::byte staged[];
  const uint32_t group_bytes = counts.depth * kStagedTileBytes;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(staged));
  auto* turn = reinterpret_cast<float(*)[kTurnStride]>(staged + StagedBytes<Shape>(counts.depth) +
                                                       warp * kTurnBytes);
  StageRows<Shape, T>(args.x, first_row, num_rows, counts.depth, staged);
  __syncthreads();
  const int rounds = (counts.outputs + step - 1) / step;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round, tile += step) {
    float totals[Shape::kSums] = {};
    float sums[Shape::kSums] = {};
    int left = counts.per_segment;
    const auto multiply = [&](BatchOfWeights & batch, int at) __attribute__((always_inline)) {
      MultiplyBatch<Shape, T>(sums, batch, base + at * kStagedTileBytes, group_bytes,
                              left == counts.per_segment);
      weights.Fetch(batch);
      left -= kBatch;
      if (left > 0) return;
      left = counts.per_segment;
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) totals[i] += sums[i];
    };
#pragma unroll 1
    for (int at = 0; at < counts.depth; at += kBatchesAhead * kBatch) {
#pragma unroll
      for (int i = 0; i < kBatchesAhead; ++i) multiply(a[i], at + i * kBatch);
    }
    const int32_t n = (tile * kWarpgroupWarps + quarter) * kMmaOutputs;
    if (n < args.outputs) StoreTile<Shape, Y>(args, totals, turn, first_row, num_rows, n, draws);
    if (draws.On(args.draw)) draws.Exchange(args.draw, first_row, round < kRoundsTold);
  }
  if (!draws.On(args.draw)) return;
  __syncthreads();
  draws.Leave(args.draw, first_row);
#endif
}

// Whether the kernel serves this depth: whole batches in every segment, and rows that fit.
template <typename Shape>
constexpr bool ServesDepth(int32_t depth) {
  const int tiles = depth / kTileDepth;
  const int per_segment = SegmentTiles(depth);
  return tiles % (kBatchesAhead * kBatch) == 0 && tiles % per_segment == 0 &&
         per_segment % kBatch == 0 && WarpgroupSharedBytes<Shape>(tiles) <= kMostWarpgroupBytes;
}

template <typename T, typename Y, typename Shape>
void LaunchWarpgroup(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                     const LaunchContext& context) {
  constexpr auto kKernel = WarpgroupKernel<T, Y, Shape>;
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kMostWarpgroupBytes);
  const WarpgroupCounts counts{.rows = rows,
                               .exact = rows > kMaxFewRows,
                               .outputs = CeilDiv(args.outputs, kWarpgroupOutputs),
                               .depth = args.depth / kTileDepth,
                               .per_segment = SegmentTiles(args.depth)};
  const int32_t groups = CeilDiv(rows, Shape::kTokens);
  const int32_t tiles = CeilDiv(counts.outputs, Shape::kWarpgroups);
  // As many tiles for every block.
  const int32_t most = std::max(1, context.processors / groups);
  const int32_t blocks = CeilDiv(tiles, CeilDiv(tiles, most));
  LaunchOverlapped(context,
                   {.blocks = dim3(groups, blocks),
                    .threads = Shape::kThreads,
                    .shared_bytes = static_cast<size_t>(WarpgroupSharedBytes<Shape>(counts.depth))},
                   kKernel, args, counts, state);
}

}  // namespace spry::cuda
