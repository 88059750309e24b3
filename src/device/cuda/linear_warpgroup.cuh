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
// A multiprocessor has 227 KiB, of which the draws take some.
inline constexpr int64_t kMostWarpgroupBytes = 222 << 10;

template <typename Shape>
constexpr int64_t WarpgroupSharedBytes(int tiles) {
  return StagedBytes<Shape>(tiles) +
         (Shape::kSplit ? Shape::kTokens * kPartStride<Shape> * 4 : Shape::kWarps * kTurnBytes);
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
  // Logits of row r of the block.
  __device__ void See(int r, const float (&logits)[8], int32_t first_id) const {
    const RowDraw row = rows[r];
    if (!row.wanted()) return;
    const DrawFilter filter(row, fmaxf(PackedValue(best[r]), -INFINITY));  // of nothing: a NaN
    bool passes = false;
#pragma unroll
    for (int e = 0; e < 8; ++e) passes |= filter.Passes(first_id + e, logits[e]);
    if (passes) Score(row, r, logits, first_id);
  }
  // The likeliest first: once its score is known most others need none.
  __device__ void Score(const RowDraw& row, int r, const float (&logits)[8],
                        int32_t first_id) const {
    float ceilings[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      ceilings[e] = row.temperature > 0.0f ? ScoreCeiling(row, first_id + e, logits[e]) : logits[e];
      if (!(logits[e] < INFINITY)) ceilings[e] = INFINITY;
    }
    const unsigned long long before = best[r];
    unsigned long long found = before;
#pragma unroll 1
    for (int turn = 0; turn < 8; ++turn) {
      float top = fmaxf(PackedValue(found), -INFINITY);  // of nothing: a NaN
      int likeliest = -1;
      float logit = 0.0f;
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (!(ceilings[e] >= top)) continue;
        top = ceilings[e];
        likeliest = e;
        logit = logits[e];
      }
      if (likeliest < 0) break;
      found =
          max(found, static_cast<unsigned long long>(PackedDraw(row, first_id + likeliest, logit)));
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        if (e == likeliest) ceilings[e] = -INFINITY;
      }
    }
    if (found > before) atomicMax(&best[r], found);
  }
  // By a warpgroup, between the first tiles: early finds spare others most of their scores.
  __device__ void Exchange(const DrawArgs& args, int32_t first_row) const {
    const int r = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    if (r >= kRows || !rows[r].wanted()) return;
    LeaveBest(args, first_row + r, best[r]);
    atomicMax(&best[r], __ldcg(reinterpret_cast<unsigned long long*>(&args.best[first_row + r])));
  }
  // After a barrier.
  __device__ void Leave(const DrawArgs& args, int32_t first_row) const {
    const int r = static_cast<int>(threadIdx.x);
    if (r < kRows && rows[r].wanted()) LeaveBest(args, first_row + r, best[r]);
  }
};
// Rounds after which a block tells the others what it has found, and hears. Later ones find little
// that is better.
inline constexpr int kRoundsTold = 2;

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
__global__ void __launch_bounds__(Shape::kThreads, Shape::kMinBlocks)
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
  const int first_tile = static_cast<int>(blockIdx.z) * counts.depth;  // of K
  const int batches = counts.depth / kBatch;
  WeightStream weights{
      .next = args.weight + (begin * int64_t{counts.all_depth} + first_tile) * kTileQuads + lane,
      .to_next_tile =
          (int64_t{step} * kWarpgroupWarps * counts.all_depth - counts.depth) * kTileQuads,
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
  StageRows<Shape, T>(args.x, first_row, num_rows, first_tile, counts.depth, staged);
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
      if (Shape::kSplit || left > 0) return;
      left = counts.per_segment;
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) totals[i] += sums[i];
    };
#pragma unroll 1
    for (int at = 0; at < counts.depth; at += kBatchesAhead * kBatch) {
#pragma unroll
      for (int i = 0; i < kBatchesAhead; ++i) {
        if (Shape::kSplit && at + i * kBatch >= counts.depth) break;
        multiply(a[i], at + i * kBatch);
      }
    }
    if constexpr (Shape::kSplit) {
      auto* part = reinterpret_cast<float*>(staged + StagedBytes<Shape>(counts.depth));
      return StoreShare<Shape, Y>(args, sums, part, first_row, num_rows,
                                  static_cast<int32_t>(blockIdx.y) * Shape::kOutputs);
    }
    const int32_t n = (tile * kWarpgroupWarps + quarter) * kMmaOutputs;
    if (n < args.outputs) StoreTile<Shape, Y>(args, totals, turn, first_row, num_rows, n, draws);
    if (draws.On(args.draw) && round < kRoundsTold) draws.Exchange(args.draw, first_row);
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
  if (tiles % per_segment != 0 || per_segment % kBatch != 0) return false;
  if (!Shape::kSplit) {
    return tiles % (kBatchesAhead * kBatch) == 0 &&
           WarpgroupSharedBytes<Shape>(tiles) <= kMostWarpgroupBytes;
  }
  return tiles == per_segment * kSegments &&
         WarpgroupSharedBytes<Shape>(per_segment) <= kMostWarpgroupBytes;
}

template <typename T, typename Y, typename Shape>
void LaunchWarpgroup(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                     const LaunchContext& context) {
  constexpr auto kKernel = WarpgroupKernel<T, Y, Shape>;
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
