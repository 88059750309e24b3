// linear for many rows on every card: a block makes a tile of outputs by rows over all of K, each
// warp a part of it, so a sum stays in its registers. Rows come through a ring of stages in shared
// memory, weights too. The norm before it is a kernel of its own.
#pragma once

#include <cstdint>

#include "device/cuda/linear_tile.cuh"
#include "device/cuda/overlap.cuh"

namespace spry::cuda {

inline constexpr int kStageTiles = 4;            // of K
inline constexpr int kManyRowsBytes = 96 << 10;  // of shared memory: two blocks a multiprocessor
inline constexpr int kStageRowBytes = kStageTiles * kTileDepth * 2;

// Warps side by side along outputs, 16 each, and along rows, kTokenTiles eights each.
template <int kOutputWarps_, int kTokenTiles_>
struct ManyRowsShape {
  static constexpr int kOutputWarps = kOutputWarps_;
  static constexpr int kTokenWarps = kLinearWarps / kOutputWarps;
  static constexpr int kTokenTiles = kTokenTiles_;
  static constexpr int kOutputs = kOutputWarps * kMmaOutputs;
  static constexpr int kRows = kTokenWarps * kTokenTiles * kMmaTokens;
  static constexpr int kStageQuads = kOutputWarps * kStageTiles * kTileQuads;  // of weights
  static constexpr int kRowsBytes = kRows * kStageRowBytes;
  static constexpr int kStageBytes = kRowsBytes + kStageQuads * 16;
  static constexpr int kStages = kManyRowsBytes / kStageBytes;
  static constexpr int kTurnStride = kOutputs + 4;  // where sums are turned around, f32
  static constexpr int kRuns = kRows * kOutputs / 8 / kLinearThreads;  // of 8 outputs, a thread's
  static_assert(kRows * kTurnStride * 4 <= kManyRowsBytes);
};

struct ManyRowsCounts {
  int32_t rows = 0;         // of the bucket
  bool exact = false;       // rows beyond the step's true count are left out
  int32_t depth = 0;        // tiles of 32
  int32_t per_segment = 0;  // of depth
};

// Where 16 bytes of a row of a stage lie: neighbouring rows start in different halves of the banks.
__device__ inline int StageOffset(int row, int quad) {
  return row * kStageRowBytes + (quad ^ row % 2 * 4) * 16;
}

// Tiles [tile, tile + kStageTiles) of K of the block's rows; what is not there is zeros. Ends a
// group of copies, also where K has ended.
template <typename Shape, typename T>
__device__ void FetchStageRows(const Matrix& x, int32_t first_row, int32_t num_rows, int tile,
                               int depth, std::byte* stage) {
  constexpr int kQuads = kStageTiles * 4;
  if (tile < depth) {
#pragma unroll
    for (int i = 0; i < Shape::kRows * kQuads / kLinearThreads; ++i) {
      const int item = i * kLinearThreads + static_cast<int>(threadIdx.x);
      const int row = item / kQuads;
      const int quad = item % kQuads;
      const bool inside = first_row + row < num_rows && tile + quad / 4 < depth;
      const T* from = reinterpret_cast<const T*>(x.data) +
                      (inside ? (first_row + row) * x.stride + tile * kTileDepth + quad * 8 : 0);
      CopyAsync16(stage + StageOffset(row, quad), from, inside);
    }
  }
  asm volatile("cp.async.commit_group;");
}

// The weights of the same tiles, after the rows. Beyond the last output it is again the last.
template <typename Shape>
__device__ void FetchStageWeights(const MmaLinearArgs& args, int tile, int depth,
                                  std::byte* stage) {
  if (tile >= depth) return;
  constexpr int kQuads = kStageTiles * kTileQuads;  // of 16 outputs
#pragma unroll
  for (int i = 0; i < Shape::kStageQuads / kLinearThreads; ++i) {
    const int item = i * kLinearThreads + static_cast<int>(threadIdx.x);
    const int32_t output =
        min(static_cast<int32_t>(blockIdx.x) * Shape::kOutputWarps + item / kQuads,
            args.outputs / kMmaOutputs - 1);
    const bool inside = tile + item % kQuads / kTileQuads < depth;
    const uint4* from = args.weight + (int64_t{output} * depth + tile) * kTileQuads;
    CopyAsync16(stage + Shape::kRowsBytes + item * 16, from + (inside ? item % kQuads : 0), inside);
  }
}

// The sums of a block, turned around in shared memory, so that 8 neighbouring outputs of a row are
// finished and stored by one thread.
template <typename Shape, typename Y>
__device__ void StoreBlock(const MmaLinearArgs& args, const float (&totals)[Shape::kTokenTiles][4],
                           float* turned, int32_t first_row, int32_t num_rows) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  constexpr int kRunsOfRow = Shape::kOutputs / 8;
  OutputRun<Y> runs[Shape::kRuns];
  const auto row_of = [&](int i) { return (i * kLinearThreads + thread) / kRunsOfRow; };
  const int column = thread % kRunsOfRow * 8;
  const int32_t n = static_cast<int32_t>(blockIdx.x) * Shape::kOutputs + column;
  const bool works = n < args.outputs;
#pragma unroll
  for (int i = 0; i < Shape::kRuns; ++i) {
    if (works) runs[i].LoadResidual(args, min(first_row + row_of(i), num_rows - 1), n);
  }
  float bias[8] = {};
  if (works && args.bias != nullptr) LoadFloats8(args.bias + n, bias);
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();  // the last stage has been used
  const int output = warp % Shape::kOutputWarps * kMmaOutputs + lane / 4;
#pragma unroll
  for (int j = 0; j < Shape::kTokenTiles; ++j) {
    const int row =
        (warp / Shape::kOutputWarps * Shape::kTokenTiles + j) * kMmaTokens + lane % 4 * 2;
    float* to = turned + row * Shape::kTurnStride + output;
    to[0] = totals[j][0];
    to[Shape::kTurnStride] = totals[j][1];
    to[8] = totals[j][2];
    to[Shape::kTurnStride + 8] = totals[j][3];
  }
  __syncthreads();
  if (!works) return;
#pragma unroll
  for (int i = 0; i < Shape::kRuns; ++i) {
    if (first_row + row_of(i) >= num_rows) return;
    float sums[8];
    LoadFloats8(turned + row_of(i) * Shape::kTurnStride + column, sums);
    runs[i].Store(args, bias, sums, first_row + row_of(i), n);
  }
}

template <typename T, typename Y, typename Shape>
__global__ void __launch_bounds__(kLinearThreads, 2)
    ManyRowsKernel(const __grid_constant__ MmaLinearArgs args,
                   const __grid_constant__ ManyRowsCounts counts, const StepState state) {
  constexpr int kTokenTiles = Shape::kTokenTiles;
  constexpr int kStages = Shape::kStages;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  extern __shared__ __align__(128) std::byte ring[];
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    FetchStageWeights<Shape>(args, s * kStageTiles, counts.depth, ring + s * Shape::kStageBytes);
  }
  AwaitPrevious();
  const int32_t num_rows = counts.exact ? NumRows(args.x.rows, state) : counts.rows;
  const int32_t first_row = static_cast<int32_t>(blockIdx.y) * Shape::kRows;
  if (first_row >= num_rows) return;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    FetchStageRows<Shape, T>(args.x, first_row, num_rows, s * kStageTiles, counts.depth,
                             ring + s * Shape::kStageBytes);
  }
  const int warp_row = warp / Shape::kOutputWarps * kTokenTiles * kMmaTokens + g;
  const int warp_quad = warp % Shape::kOutputWarps * kStageTiles * kTileQuads + lane;
  float totals[kTokenTiles][4] = {};
  float sums[kTokenTiles][4] = {};
  bool first_segment = true;
  int left = counts.per_segment;
  int slot = 0;
#pragma unroll 1
  for (int first = 0; first < counts.depth; first += kStageTiles) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();
    const int next = first + (kStages - 1) * kStageTiles;
    std::byte* free_stage = ring + (slot == 0 ? kStages - 1 : slot - 1) * Shape::kStageBytes;
    FetchStageWeights<Shape>(args, next, counts.depth, free_stage);
    FetchStageRows<Shape, T>(args.x, first_row, num_rows, next, counts.depth, free_stage);
    const std::byte* stage = ring + slot * Shape::kStageBytes;
    const uint4* weights = reinterpret_cast<const uint4*>(stage + Shape::kRowsBytes) + warp_quad;
#pragma unroll
    for (int i = 0; i < kStageTiles; ++i) {
      if (first + i >= counts.depth) break;
      const TileOfWeights a = {weights[i * kTileQuads], weights[i * kTileQuads + kWarpThreads]};
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        const std::byte* b = stage + StageOffset(warp_row + j * kMmaTokens, i * 4 + t);
        AddTile<T>(sums[j], a, LoadB(b));
      }
      if (--left != 0 && first + i + 1 != counts.depth) continue;
      left = counts.per_segment;
      EndSegment(totals, sums, first_segment);
      first_segment = false;
    }
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  StoreBlock<Shape, Y>(args, totals, reinterpret_cast<float*>(ring), first_row, num_rows);
}

template <typename T, typename Y, typename Shape>
void LaunchManyRows(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                    const LaunchContext& context) {
  constexpr auto kKernel = ManyRowsKernel<T, Y, Shape>;
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kManyRowsBytes);
  const ManyRowsCounts counts{.rows = rows,
                              .exact = rows > kMaxFewRows,
                              .depth = args.depth / kTileDepth,
                              .per_segment = SegmentTiles(args.depth)};
  LaunchOverlapped(
      context,
      {.blocks = dim3(CeilDiv(args.outputs, Shape::kOutputs), CeilDiv(rows, Shape::kRows)),
       .threads = kLinearThreads,
       .shared_bytes = kManyRowsBytes},
      kKernel, args, counts, state);
}

}  // namespace spry::cuda
