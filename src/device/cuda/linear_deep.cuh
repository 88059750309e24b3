// linear for few rows of great depth: a block makes 16 outputs at a time, each warp one segment of
// K, as in linear_few_rows.cuh, but a segment is longer than what registers can hold.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/cuda/linear_few_rows.cuh"
#include "device/cuda/weight_ring.cuh"

namespace spry::cuda {

inline constexpr int kMaxDeepRows = 16;
inline constexpr int kDeepAhead = 12;  // with two blocks a multiprocessor 192 KiB of weights
using DeepRing = WeightRing<kDeepAhead>;
inline constexpr int64_t kDeepRingBytes = kLinearWarps * DeepRing::kBytes;

template <typename T, typename Y, typename Shape>
__global__ void __launch_bounds__(kLinearThreads, 2)
    DeepKernel(const __grid_constant__ MmaLinearArgs args,
               const __grid_constant__ FewRowsCounts counts) {
  constexpr int kTokenTiles = Shape::kTokenTiles;
  constexpr int kBAhead = 4;  // tiles of rows in registers
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  const int begin = warp * counts.per_segment;  // of this warp's segment
  const int length = max(0, min(counts.per_segment, counts.depth - begin));
  const int used = (counts.depth + counts.per_segment - 1) / counts.per_segment;
  const int blocks = static_cast<int>(gridDim.x);
  int tile = static_cast<int>(blockIdx.x);  // of outputs
  extern __shared__ __align__(128) std::byte shared[];
  DeepRing ring({.first = args.weight + (int64_t{tile} * counts.depth + begin) * kTileQuads,
                 .num_runs = (counts.outputs - tile + blocks - 1) / blocks,
                 .run_tiles = length,
                 .next_run = int64_t{blocks} * counts.depth * kTileQuads},
                shared + warp * DeepRing::kBytes);
  AwaitPrevious();
  const T* rows[kTokenTiles];  // where this lane's B of its segment begins
#pragma unroll
  for (int j = 0; j < kTokenTiles; ++j) {
    const int32_t row = min(j * kMmaTokens + g, counts.rows - 1);
    rows[j] =
        reinterpret_cast<const T*>(args.x.data) + row * args.x.stride + begin * kTileDepth + t * 8;
  }
  __shared__ PartialSums<Shape> partial[2];
  const int output = thread % kMmaOutputs;
  Draws<Y, Shape> no_draws(args.draw, 0, nullptr);
  for (int buffer = 0; tile < counts.outputs; tile += blocks, buffer ^= 1) {
    float residual[Shape::kItems];  // fetched while the products run
    LoadResiduals<Y, Shape>(args, 0, counts.rows, tile * kMmaOutputs + output, residual);
    const float bias = BiasAt(args, tile * kMmaOutputs + output);
    float sums[1][kTokenTiles][4] = {};
    uint4 b[kBAhead][kTokenTiles];
    const auto fetch = [&](int i, int at) __attribute__((always_inline)) {
      if (at >= length) return;
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) b[i][j] = LoadB(rows[j] + at * kTileDepth);
    };
#pragma unroll
    for (int i = 0; i < kBAhead; ++i) fetch(i, i);
    for (int first = 0; first < length; first += kBAhead) {
#pragma unroll
      for (int i = 0; i < kBAhead; ++i) {
        if (first + i >= length) break;
        const TileOfWeights a = ring.Take();
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) AddTile<T>(sums[0][j], a, b[i][j]);
        ring.Fetch();
        fetch(i, first + i + kBAhead);
      }
    }
    partial[buffer].Put(warp, g, t, sums);
    __syncthreads();  // with two buffers, also: the other one is free again
    StoreSums<Y>(args, partial[buffer], used, bias, residual, {0, counts.rows, tile * kMmaOutputs},
                 no_draws);
  }
}

template <typename T, typename Y, int kTokenTiles>
void LaunchDeep(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  constexpr auto kKernel = DeepKernel<T, Y, FewRowsShape<kTokenTiles, 1, 1, false>>;
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kDeepRingBytes));
  const FewRowsCounts counts{.rows = rows,
                             .outputs = args.outputs / kMmaOutputs,
                             .depth = args.depth / kTileDepth,
                             .per_segment = SegmentTiles(args.depth)};
  LaunchOverlapped(context,
                   {.blocks = dim3(std::min(counts.outputs, context.processors * 2)),
                    .threads = kLinearThreads,
                    .shared_bytes = static_cast<size_t>(kDeepRingBytes)},
                   kKernel, args, counts);
}

// The norm before it, if any, is a kernel of its own.
inline bool IsDeep(const MmaLinearArgs& args, int32_t rows) {
  return rows <= kMaxDeepRows && args.draw.best == nullptr && SegmentTiles(args.depth) > kDeepAhead;
}

}  // namespace spry::cuda
