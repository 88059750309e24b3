// linear of many rows on Hopper's warpgroup products, for a depth of which a block's rows do not
// fit in shared memory: they come a segment of K at a time, the next one while this one is
// multiplied. Weights go straight to the registers of the warp that uses them, as in
// linear_warpgroup.cuh.
#pragma once

#include <cstdint>

#include "device/cuda/linear_tile.cuh"
#include "device/cuda/linear_warpgroup.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/warpgroup_mma.cuh"

namespace spry::cuda {

using SegmentsShape = WarpgroupShape<64, 3>;
static_assert(kBatch * SegmentsShape::kEights % SegmentsShape::kWarps == 0);

inline int64_t SegmentsSharedBytes(int per_segment) {
  return 2 * StagedBytes<SegmentsShape>(per_segment) + SegmentsShape::kWarps * int64_t{kTurnBytes};
}

// kBatch tiles of K of the block's rows, from `tile` on, to where tile `at` of `count` lies. Rows
// beyond the last are zeros. Four bytes at a time: a core matrix has as many of each of a row's 16.
template <typename T>
__device__ void FetchRows(const Matrix& x, int32_t first_row, int32_t num_rows, int tile, int at,
                          int count, std::byte* staged) {
  using Shape = SegmentsShape;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
  for (int item = 0; item < kBatch * Shape::kEights / Shape::kWarps; ++item) {
    const int i = item * Shape::kWarps + warp;
    const int eight = i % Shape::kEights;
    const int in_batch = i / Shape::kEights;
    const int32_t row = first_row + eight * 8 + lane / 4;
    const bool inside = row < num_rows;
    const T* from = reinterpret_cast<const T*>(x.data) + (inside ? row : first_row) * x.stride +
                    (tile + in_batch) * kTileDepth + lane % 4 * 8;
    std::byte* to = staged + (eight * count + at + in_batch) * kStagedTileBytes + lane * 4;
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      CopyAsync4(to + pair * kCoreBytes, from + pair * 2, inside);
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(SegmentsShape::kThreads, 1)
    SegmentsKernel(const __grid_constant__ MmaLinearArgs args,
                   const __grid_constant__ WarpgroupCounts counts, const StepHeader* header) {
#if SPRY_HAS_WARPGROUP_MMA
  using Shape = SegmentsShape;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * Shape::kTokens;
  // Written by stage, long ago (overlap.cuh).
  const int32_t num_rows = counts.exact ? NumRows(args.x.rows, *header) : counts.rows;
  if (first_row >= num_rows) return AwaitPrevious();
  extern __shared__ __align__(128) std::byte staged[];
  const auto segment_bytes = static_cast<uint32_t>(StagedBytes<Shape>(counts.depth));
  const int32_t n = static_cast<int32_t>(blockIdx.y) * Shape::kOutputs + warp * kMmaOutputs;
  // A warp beyond the last output makes it again, for nobody.
  const int32_t tile = min(n / kMmaOutputs, args.outputs / kMmaOutputs - 1);
  WeightsInRegisters weights(args.weight + tile * int64_t{counts.all_depth} * kTileQuads, 0, 0,
                             counts.all_depth, nullptr);
  AwaitPrevious();
  for (int at = 0; at < counts.depth; at += kBatch) {
    FetchRows<T>(args.x, first_row, num_rows, at, at, counts.depth, staged);
  }
  const uint32_t group_bytes = counts.depth * kStagedTileBytes;
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(staged));
  float totals[Shape::kSums] = {};
#pragma unroll 1
  for (int first = 0, turn = 0; first < counts.all_depth; first += counts.depth, turn ^= 1) {
    asm volatile("cp.async.wait_all;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();  // the segment is here, and the one before it has been used
    const int next = first + counts.depth;
    std::byte* to = staged + (turn ^ 1) * segment_bytes;
    const uint32_t operand = base + turn * segment_bytes;
    float sums[Shape::kSums];
    weights.ForBatches(counts.depth, [&](const BatchOfWeights& batch, int at) {
      if (next < counts.all_depth) {
        FetchRows<T>(args.x, first_row, num_rows, next + at, at, counts.depth, to);
      }
      MultiplyBatch<Shape, T>(sums, batch, operand + at * kStagedTileBytes, group_bytes, at == 0);
    });
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) totals[i] += sums[i];
  }
  if (n >= args.outputs) return;
  auto* turns = staged + 2 * segment_bytes + warp * kTurnBytes;
  StoreTile<Shape, T>(args, totals, reinterpret_cast<float(*)[kTurnStride]>(turns), first_row,
                      num_rows, n, BlockDraws<T, Shape>{});
#endif
}

// False: other kernels are faster, or alone.
template <typename T>
bool LaunchSegments(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                    const LaunchContext& context) {
  using Shape = SegmentsShape;
  const int tiles = args.depth / kTileDepth;
  const int per_segment = SegmentTiles(args.depth);
  const int64_t shared = SegmentsSharedBytes(per_segment);
  const dim3 blocks(CeilDiv(rows, Shape::kTokens), CeilDiv(args.outputs, Shape::kOutputs));
  if (!context.warpgroups || tiles != per_segment * kSegments ||
      per_segment % (kBatchesAhead * kBatch) != 0 || shared > kMostWarpgroupBytes ||
      static_cast<int32_t>(blocks.x * blocks.y) < context.processors) {
    return false;
  }
  constexpr auto kKernel = SegmentsKernel<T>;
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kMostWarpgroupBytes);
  const WarpgroupCounts counts{
      .rows = rows, .exact = rows > kMaxFewRows, .all_depth = tiles, .depth = per_segment};
  LaunchOverlapped(
      context,
      {.blocks = blocks, .threads = Shape::kThreads, .shared_bytes = static_cast<size_t>(shared)},
      kKernel, args, counts, state.header);
  return true;
}

}  // namespace spry::cuda
