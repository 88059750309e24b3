// Logits of more than 8 rows, on Hopper's warpgroup products: a block makes tiles of 64 outputs of
// its rows, one a warpgroup at a time, each over all of K. Nothing is read twice, so memory's rate
// is the limit. Weights go to the registers of the one warp that uses them, some batches ahead.
// Rows come packed, by bulk copies of a batch of K each: products begin with the first, and a load
// would queue behind the weights that are on their way.
//
// Logits that are drawn go to one more warpgroup, which has nothing else to do (linear_draws.cuh):
// hashes and products take different parts of a multiprocessor.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/cuda/linear_draws.cuh"
#include "device/cuda/linear_input.cuh"
#include "device/cuda/linear_warpgroup.cuh"
#include "device/cuda/packed_rows.cuh"

namespace spry::cuda {

// kTokens: rows of a block.
template <int kTokens_>
struct LogitShape {
  static constexpr int kTokens = kTokens_;
  static constexpr int kWarpgroups = 3;                             // that multiply
  static constexpr int kThreads = kWarpgroups * kWarpgroupThreads;  // of those
  static constexpr int kWarps = kWarpgroups * kWarpgroupWarps;
  static constexpr int kSums = kTokens / 2;       // of a thread
  static constexpr int kEights = kTokens / 8;     // of tokens
  static constexpr int kSixteens = kTokens / 16;  // of tokens, as they are stored
  static constexpr int kRowTileBytes = kEights * kPackedBlockBytes;
  static constexpr int kRowBatchBytes = kBatch * kRowTileBytes;
  using Tiles = LogitTiles<kTokens, kWarpgroups>;
  using Draws = RowDraws<kTokens>;
};

struct LogitCounts {
  int32_t rows = 0;         // of the bucket
  bool exact = false;       // rows beyond the step's true count are left out
  int32_t outputs = 0;      // tiles of 64, the last maybe in part
  int32_t depth = 0;        // tiles of 32
  int32_t per_segment = 0;  // of depth
};

inline constexpr int kMaxRowBatches = 32;
// The threads of a block share registers so.
inline constexpr int kProductRegisters = 144;
inline constexpr int kDrawRegisters = 80;

template <typename Shape>
constexpr int64_t LogitSharedBytes(int tiles) {
  const int drawn = Shape::Tiles::kBytes + Shape::kWarpgroups * Shape::Draws::kNoiseBytes;
  return int64_t{tiles} * Shape::kRowTileBytes +
         std::max(drawn, Shape::kWarps * static_cast<int>(kTurnBytes));
}

// A warp's 16 outputs, from n on, of all the block's tokens, to the place of its warpgroup.
template <typename Shape>
__device__ void PutLogits(const MmaLinearArgs& args, float (&sums)[Shape::kSums],
                          const typename Shape::Tiles& tiles, int round, int32_t n) {
  float bias[Shape::kSums] = {};
  if (args.bias != nullptr && n < args.outputs) {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) bias[i] = args.bias[n + g + i / 2 % 2 * 8];
  }
  constexpr float kNoResidual[Shape::kSums] = {};
  FinishSums(args, bias, kNoResidual, sums);
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
  tiles.AwaitEmpty(warpgroup, round);
  PutSums<Shape::kEights, Shape::Tiles::kStride>(sums,
                                                 tiles.Place(warpgroup) + n % kWarpgroupOutputs);
  tiles.SetFull(warpgroup);
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads + kWarpgroupThreads, 1)
    LogitsKernel(const __grid_constant__ MmaLinearArgs args,
                 const __grid_constant__ LogitCounts counts, const StepState state) {
#if SPRY_HAS_WARPGROUP_MMA
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * Shape::kTokens;
  // Written by stage, long ago (overlap.cuh).
  const int32_t num_rows = counts.exact ? NumRows(args.x.rows, state) : counts.rows;
  if (first_row >= num_rows) return AwaitPrevious();
  const int step = static_cast<int>(gridDim.y) * Shape::kWarpgroups;
  const int rounds = (counts.outputs + step - 1) / step;
  const int first = static_cast<int>(blockIdx.y) * Shape::kWarpgroups;  // tile of 64
  extern __shared__ __align__(128) std::byte rows[];
  std::byte* beside = rows + counts.depth * Shape::kRowTileBytes;
  __shared__ SharedBarrier rows_here[kMaxRowBatches];
  __shared__ SharedBarrier logit_barriers[2 * Shape::kWarpgroups];
  const typename Shape::Tiles logits{.tiles = reinterpret_cast<float*>(beside),
                                     .full = logit_barriers,
                                     .empty = logit_barriers + Shape::kWarpgroups};
  const bool drawing = args.draw.best != nullptr;
  const int row_batches = counts.depth / kBatch;
  if (thread == 0) {
    logits.Init();
    for (int b = 0; b < row_batches; ++b) rows_here[b].Init(1);
    SharedBarrier::FenceInit();
  }
  __syncthreads();
  if (thread >= Shape::kThreads) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kDrawRegisters));
    typename Shape::Draws draws(args.draw, first_row);
    AwaitPrevious();
    if (warp == Shape::kWarps && IsElected()) {
      const std::byte* from =
          args.packed + int64_t{blockIdx.x} * counts.depth * Shape::kRowTileBytes;
      for (int b = 0; b < row_batches; ++b) {
        rows_here[b].ArriveAndExpect(Shape::kRowBatchBytes);
        rows_here[b].Copy(rows + b * Shape::kRowBatchBytes, from + b * Shape::kRowBatchBytes,
                          Shape::kRowBatchBytes);
      }
    }
    __syncwarp();
    if (!drawing) return;
    const auto first_output = [&](int w, int round) {
      return (first + w + round * step) * kWarpgroupOutputs;
    };
    const auto noise = [&](int w) {
      return beside + Shape::Tiles::kBytes + w * Shape::Draws::kNoiseBytes;
    };
    for (int w = 0; w < Shape::kWarpgroups; ++w) draws.Prepare(noise(w), first_output(w, 0));
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll 1
      for (int w = 0; w < Shape::kWarpgroups; ++w) {
        draws.Draw(logits, noise(w), w, round, first_output(w, round), args.outputs);
        if (round + 1 == rounds) continue;
        draws.Ask();
        draws.Prepare(noise(w), first_output(w, round + 1));
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kProductRegisters));
  int tile = first + warp / kWarpgroupWarps;
  const int32_t last = args.outputs / kMmaOutputs - 1;  // tile of 16
  const int quarter = warp % kWarpgroupWarps;
  // A warp beyond the last output makes it again, for nobody.
  const int32_t begin = min(tile * kWarpgroupWarps + quarter, last);
  const uint4* from = args.weight + begin * int64_t{counts.depth} * kTileQuads;
  const int64_t next_tile = int64_t{step} * kWarpgroupWarps * counts.depth * kTileQuads;
  const int tiles_left = (last - begin) / (step * kWarpgroupWarps);
  WeightsInRegisters weights(from, next_tile, tiles_left, counts.depth);
  AwaitPrevious();
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(rows));
#pragma unroll 1
  for (int round = 0; round < rounds; ++round, tile += step) {
    float totals[Shape::kSums] = {};
    float sums[Shape::kSums] = {};
    int left = counts.per_segment;
    weights.ForBatches(counts.depth, [&](const BatchOfWeights& batch, int at) {
      rows_here[at / kBatch].Await(0);
      MultiplyBatch<Shape::kRowTileBytes, T>(sums, batch, base + at * Shape::kRowTileBytes,
                                             kPackedBlockBytes, left == counts.per_segment);
      left -= kBatch;
      if (left > 0) return;
      left = counts.per_segment;
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) totals[i] += sums[i];
    });
    const int32_t n = (tile * kWarpgroupWarps + quarter) * kMmaOutputs;
    if (drawing) {
      PutLogits<Shape>(args, totals, logits, round, n);
    } else if (n < args.outputs) {
      auto* turn = reinterpret_cast<float(*)[kTurnStride]>(beside + warp * kTurnBytes);
      StoreTile<Shape, float>(args, totals, turn, first_row, num_rows, n,
                              BlockDraws<float, Shape>{});
    }
  }
#endif
}

// Whether the kernel serves this depth: whole batches in every segment, and rows that fit.
template <typename Shape>
constexpr bool ServesLogits(int32_t depth) {
  const int tiles = depth / kTileDepth;
  const int per_segment = SegmentTiles(depth);
  return tiles % per_segment == 0 && per_segment % kBatch == 0 &&
         tiles % (kBatchesAhead * kBatch) == 0 && tiles <= kMaxRowBatches * kBatch &&
         LogitSharedBytes<Shape>(tiles) <= kMostWarpgroupBytes;
}

template <typename T, typename Shape>
bool LaunchLogitsAs(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                    const LaunchContext& context) {
  if (!ServesLogits<Shape>(args.depth)) return false;
  constexpr auto kKernel = LogitsKernel<T, Shape>;
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             kMostWarpgroupBytes);
  const LogitCounts counts{.rows = rows,
                           .exact = rows > kMaxFewRows,
                           .outputs = CeilDiv(args.outputs, kWarpgroupOutputs),
                           .depth = args.depth / kTileDepth,
                           .per_segment = SegmentTiles(args.depth)};
  const InputPlace place{.data = args.packed, .eights = Shape::kEights, .tiles = counts.depth};
  LaunchRowsTo<T>(place, args, rows, context);
  const int32_t groups = CeilDiv(rows, Shape::kTokens);
  const int32_t tiles = CeilDiv(counts.outputs, Shape::kWarpgroups);
  // As many tiles for every block.
  const int32_t most = std::max(1, context.processors / groups);
  const int32_t blocks = CeilDiv(tiles, CeilDiv(tiles, most));
  LaunchOverlapped(context,
                   {.blocks = dim3(groups, blocks),
                    .threads = Shape::kThreads + kWarpgroupThreads,
                    .shared_bytes = static_cast<size_t>(LogitSharedBytes<Shape>(counts.depth))},
                   kKernel, args, counts, state);
  return true;
}

// False: other kernels make them.
template <typename T>
bool LaunchLogits(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                  const LaunchContext& context) {
  if (rows <= kMmaTokens || args.best_draws == nullptr ||
      !TakesLogits(args.depth, context.warpgroups)) {
    return false;
  }
  return (rows <= 16 && LaunchLogitsAs<T, LogitShape<16>>(args, rows, state, context)) ||
         (rows > 32 && LaunchLogitsAs<T, LogitShape<64>>(args, rows, state, context)) ||
         LaunchLogitsAs<T, LogitShape<32>>(args, rows, state, context);
}

}  // namespace spry::cuda
