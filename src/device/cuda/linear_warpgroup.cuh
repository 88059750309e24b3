// linear on Hopper's warpgroup products, for many rows or many outputs. A block keeps its rows of x
// in shared memory and makes tiles of 64 outputs, one a warpgroup at a time, each over all of K: no
// sum leaves its thread before it is complete. Weights go straight to the registers of the one warp
// that uses them, two batches ahead, so there is no barrier inside a tile.
//
// Rows of x that are too long come in pieces; then a block makes one tile a warpgroup.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/cuda/linear_tile.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/warpgroup_mma.cuh"

namespace spry::cuda {

// kTokens: rows of a block. kBatch: tiles of K whose weights a warp fetches at a time, a divisor of
// a segment.
template <int kTokens_, int kWarpgroups_, int kBatch_, int kMinBlocks_>
struct WarpgroupShape {
  static constexpr int kTokens = kTokens_;
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kBatch = kBatch_;
  static constexpr int kMinBlocks = kMinBlocks_;
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
  int32_t piece = 0;        // tiles of 32 in shared memory at a time
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

template <typename Shape>
constexpr int64_t WarpgroupSharedBytes(int piece) {
  return StagedBytes<Shape>(piece) + Shape::kWarps * kTurnBytes;
}

// Tiles [first, first + count) of K of the block's rows. A warp takes runs of tiles of 8 rows.
template <typename Shape, typename T>
__device__ void StageRows(const Matrix& x, int32_t first_row, int32_t num_rows, int first,
                          int count, std::byte* staged) {
  constexpr int kRun = Shape::kWarpgroups == 1 ? 12 : 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  const int runs = (count + kRun - 1) / kRun * Shape::kEights;
#pragma unroll 1
  for (int run = static_cast<int>(threadIdx.x) / kWarpThreads; run < runs; run += Shape::kWarps) {
    const int eight = run % Shape::kEights;
    const int tile = run / Shape::kEights * kRun;
    const int32_t row = min(first_row + eight * 8 + g, num_rows - 1);
    const T* from =
        reinterpret_cast<const T*>(x.data) + row * x.stride + (first + tile) * kTileDepth + t * 8;
    uint4 words[kRun];
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      words[i] = tile + i < count ? *reinterpret_cast<const uint4*>(from + i * kTileDepth)
                                  : make_uint4(0, 0, 0, 0);
    }
    auto* to = reinterpret_cast<uint32_t*>(staged + (eight * count + tile) * kStagedTileBytes +
                                           g * 16 + t * 4);
#pragma unroll
    for (int i = 0; i < kRun; ++i, to += kStagedTileBytes / 4) {
      if (tile + i >= count) break;
      to[0] = words[i].x;
      to[kCoreBytes / 4] = words[i].y;
      to[kCoreBytes / 2] = words[i].z;
      to[kCoreBytes / 4 * 3] = words[i].w;
    }
  }
}

// The weights of one warp: its tiles of 16 outputs in turn, each along K, a batch at a time.
template <typename Shape>
struct WeightStream {
  const uint4* next;
  int64_t to_next_tile;  // from the end of one
  int batches;           // of a tile
  int left;              // of this tile
  int tiles_left;        // after this one

  __device__ void Fetch(TileOfWeights (&a)[Shape::kBatch]) {
    if (left == 0) {
      if (tiles_left == 0) return;
      --tiles_left;
      next += to_next_tile;
      left = batches;
    }
    --left;
#pragma unroll
    for (int i = 0; i < Shape::kBatch; ++i) a[i].Load(next + i * kTileQuads);
    next += Shape::kBatch * kTileQuads;
  }
};

// Eight neighbouring outputs of one token.
template <typename Y>
struct OutputRun {
  float residual[8] = {};

  __device__ void LoadResidual(const MmaLinearArgs& args, int32_t row, int32_t n) {
    if (args.residual.data == nullptr) return;
    const Y* from = reinterpret_cast<const Y*>(args.residual.data) + row * args.residual.stride + n;
    Y values[8];
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Y)) / 2; ++i) {
      reinterpret_cast<uint4*>(values)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) residual[e] = ToFloat(values[e]);
  }
  __device__ void Store(const MmaLinearArgs& args, float (&sums)[8], const float (&bias)[8],
                        int32_t row, int32_t n) const {
    FinishSums(args, bias, residual, sums);
    Y values[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = FromFloat<Y>(sums[e]);
    Y* to = reinterpret_cast<Y*>(args.y.data) + row * args.y.stride + n;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Y)) / 2; ++i) {
      const uint4 bits = reinterpret_cast<const uint4*>(values)[i];
      if constexpr (sizeof(Y) == 4) {
        __stcs(reinterpret_cast<uint4*>(to) + i, bits);  // logits: nobody reads them soon
      } else {
        reinterpret_cast<uint4*>(to)[i] = bits;
      }
    }
  }
};

// Stores a warp's 16 outputs, from n on, of all the block's tokens.
template <typename Shape, typename Y>
__device__ void StoreTile(const MmaLinearArgs& args, const float (&sums)[Shape::kSums],
                          float (*turn)[kTurnStride], int32_t first_row, int32_t num_rows,
                          int32_t n) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  const int token = lane / 2;
  const int32_t mine = n + lane % 2 * 8;
  float bias[8] = {};
  if (args.bias != nullptr) LoadFloats8(args.bias + mine, bias);
#pragma unroll
  for (int s = 0; s < Shape::kSixteens; ++s) {
    const int32_t row = first_row + s * 16 + token;
    OutputRun<Y> run;
    if (row < num_rows) run.LoadResidual(args, row, mine);
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
    if (row < num_rows) run.Store(args, values, bias, row, mine);
    __syncwarp();
  }
}

#if SPRY_HAS_WARPGROUP_MMA

// One batch: tiles [0, kBatch) of the K at `operand`. starts: of a segment.
template <typename Shape, typename T>
__device__ void MultiplyBatch(float (&sums)[Shape::kSums], const TileOfWeights (&a)[Shape::kBatch],
                              uint32_t operand, uint32_t group_bytes, bool starts) {
  WarpgroupArrive();
#pragma unroll
  for (int i = 0; i < Shape::kBatch; ++i) {
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
  constexpr int kBatch = Shape::kBatch;
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
  WeightStream<Shape> weights{
      .next = args.weight + begin * int64_t{counts.depth} * kTileQuads + lane,
      .to_next_tile = (int64_t{step} * kWarpgroupWarps - 1) * counts.depth * kTileQuads,
      .batches = batches,
      .left = batches,
      .tiles_left = (last - begin) / (step * kWarpgroupWarps)};
  TileOfWeights even[kBatch];
  TileOfWeights odd[kBatch];
  weights.Fetch(even);
  weights.Fetch(odd);
  AwaitPrevious();
  int32_t num_rows = counts.rows;
  if (counts.exact) {
    num_rows = NumRows(args.x.rows, state);
    if (first_row >= num_rows) return;
  }

  extern __shared__ __align__(128) std::byte staged[];
  const uint32_t group_bytes = counts.piece * kStagedTileBytes;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(staged));
  auto* turn = reinterpret_cast<float(*)[kTurnStride]>(staged + StagedBytes<Shape>(counts.piece) +
                                                       warp * kTurnBytes);
  const bool whole = counts.piece == counts.depth;
  if (whole) {
    StageRows<Shape, T>(args.x, first_row, num_rows, 0, counts.depth, staged);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
  }
  const int rounds = (counts.outputs + step - 1) / step;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round, tile += step) {
    float totals[Shape::kSums] = {};
    float sums[Shape::kSums] = {};
    int left = counts.per_segment;
#pragma unroll 1
    for (int piece = 0; piece < counts.depth; piece += counts.piece) {
      if (!whole) {
        if (piece > 0) __syncthreads();
        StageRows<Shape, T>(args.x, first_row, num_rows, piece, counts.piece, staged);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
      }
      const auto multiply = [&](TileOfWeights(&a)[kBatch], int at) __attribute__((always_inline)) {
        MultiplyBatch<Shape, T>(sums, a, base + at * kStagedTileBytes, group_bytes,
                                left == counts.per_segment);
        weights.Fetch(a);
        left -= kBatch;
        if (left > 0) return;
        left = counts.per_segment;
#pragma unroll
        for (int i = 0; i < Shape::kSums; ++i) totals[i] += sums[i];
      };
#pragma unroll 1
      for (int at = 0; at < counts.piece; at += 2 * kBatch) {
        multiply(even, at);
        multiply(odd, at + kBatch);
      }
    }
    const int32_t n = (tile * kWarpgroupWarps + quarter) * kMmaOutputs;
    if (n < args.outputs) StoreTile<Shape, Y>(args, totals, turn, first_row, num_rows, n);
  }
#endif
}

// Whether such kernels serve this depth with batches of kBatch tiles.
constexpr bool BatchDivides(int32_t depth, int batch) {
  const int tiles = depth / kTileDepth;
  const int per_segment = SegmentTiles(depth);
  return tiles % (2 * batch) == 0 && tiles % per_segment == 0 && per_segment % batch == 0;
}

// Tiles of K in shared memory at a time: whole rows, or equal parts of them.
template <typename Shape>
int PieceOf(int depth_tiles, int64_t most_bytes) {
  int parts = 1;
  while (WarpgroupSharedBytes<Shape>(depth_tiles / parts) > most_bytes ||
         depth_tiles % (parts * 2 * Shape::kBatch) != 0) {
    ++parts;
  }
  return depth_tiles / parts;
}

template <typename T, typename Y, typename Shape>
void LaunchWarpgroup(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                     const LaunchContext& context) {
  constexpr auto kKernel = WarpgroupKernel<T, Y, Shape>;
  constexpr int64_t kMostBytes = (Shape::kMinBlocks > 1 ? 112 : 226) << 10;
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes);
  WarpgroupCounts counts{.rows = rows,
                         .exact = rows > kMaxFewRows,
                         .outputs = CeilDiv(args.outputs, kWarpgroupOutputs),
                         .depth = args.depth / kTileDepth,
                         .per_segment = SegmentTiles(args.depth)};
  counts.piece = PieceOf<Shape>(counts.depth, kMostBytes);
  const int32_t groups = CeilDiv(rows, Shape::kTokens);
  const int32_t tiles = CeilDiv(counts.outputs, Shape::kWarpgroups);
  int32_t blocks = tiles;
  if (counts.piece == counts.depth) {
    // As many tiles for every block.
    const int32_t most = std::max(1, context.processors * Shape::kMinBlocks / groups);
    blocks = CeilDiv(tiles, CeilDiv(tiles, most));
  }
  LaunchOverlapped(context,
                   {.blocks = dim3(groups, blocks),
                    .threads = Shape::kThreads,
                    .shared_bytes = static_cast<size_t>(WarpgroupSharedBytes<Shape>(counts.piece))},
                   kKernel, args, counts, state);
}

}  // namespace spry::cuda
