// linear of some tens to some hundreds of rows on Hopper's warpgroup products, for depths of
// kResidentDepth or a few times that. What such a product costs is latency: every block has its
// weights on the multiprocessor, half in shared memory and half in registers, before the kernel
// before this one has ended, and its rows, packed (linear_input.cuh), come by bulk copies that are
// all asked for at once. Nothing is asked for twice and nobody waits for a free place. Up to
// kMaxNormedResident rows a block norms its own, which is less than a launch.
//
// A greater depth is shared out in a cluster, kResidentDepth a block: two segments, one from shared
// memory and one from registers. Every block then finishes a share of the tokens.
#pragma once

#include <cstdint>

#include "device/cuda/linear_input.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/linear_warpgroup.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/shared_barrier.cuh"
#include "device/cuda/warpgroup_mma.cuh"

namespace spry::cuda {

inline constexpr int kResidentTiles = kResidentDepth / kTileDepth;  // of K in a block
inline constexpr int kResidentChunks = 8;  // of a block's K: they come one by one
inline constexpr int kChunkTiles = kResidentTiles / kResidentChunks;
inline constexpr int kSharedChunks = kResidentChunks / 2;  // of weights in shared memory
inline constexpr int kSharedTiles = kSharedChunks * kChunkTiles;
inline constexpr int kMaxNormedResident = 64;  // rows

// kBlocks: that share K. 1: the segments are the chunks. kNorms: every block norms its rows.
template <int kTokens_, int kBlocks_, bool kNorms_ = false>
struct ResidentShape {
  static constexpr int kTokens = kTokens_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr bool kNorms = kNorms_;
  static constexpr int kWarps = kResidentOutputs / kMmaOutputs;
  static constexpr int kThreads = kWarps * kWarpThreads;
  static constexpr int kEights = kTokens / 8;
  static constexpr int kSums = kTokens / 2;  // of a thread
  // Where a warp stores 8 tiles of one row, they go to different banks.
  static constexpr int kRowTileBytes = kEights * kPackedBlockBytes + (kNorms ? 16 : 0);
  static constexpr int kChunkBytes = kChunkTiles * kRowTileBytes;    // of rows
  static constexpr int kWarpBytes = kSharedTiles * kTileQuads * 16;  // of weights
  static constexpr int kWeightBytes = kWarps * kWarpBytes;
  static constexpr int kBytes = kWeightBytes + kResidentChunks * kChunkBytes;
  // Two segments, [segment][token][output] in f32, where the weights were.
  static constexpr int kPartStride = kResidentOutputs + 4;
  static constexpr int kPart = kTokens * kPartStride;
  static_assert(2 * kPart * 4 <= kWeightBytes && kTurnBytes <= kWarpBytes);
  static constexpr int kShare = kTokens / kBlocks;  // of tokens, that a block finishes
  // Of 4 outputs, a thread's; in a small share not every thread has one.
  static constexpr int kRuns = (kShare + kWarps - 1) / kWarps;
};

struct ResidentCounts {
  int32_t rows = 0;       // of the bucket
  bool exact = false;     // rows beyond the step's true count are left out
  int32_t all_tiles = 0;  // of K
};

#if SPRY_HAS_WARPGROUP_MMA

// The products of one chunk.
template <typename Shape, typename T>
__device__ void MultiplyChunk(float (&sums)[Shape::kSums], const TileOfWeights (&a)[kChunkTiles],
                              const std::byte* rows, bool adds) {
  const auto base = static_cast<uint32_t>(__cvta_generic_to_shared(rows));
  WarpgroupArrive();
#pragma unroll
  for (int i = 0; i < kChunkTiles; ++i) {
    const uint32_t b = base + i * Shape::kRowTileBytes;
    WarpgroupMma(T{}, sums, a[i].first, OperandAt(b, kPackedBlockBytes), i > 0 || adds);
    WarpgroupMma(T{}, sums, a[i].second, OperandAt(b + 2 * kCoreBytes, kPackedBlockBytes), 1);
  }
  WarpgroupCommit();
  WarpgroupWait();
}

// A norm's weights and biases, this lane's of every chunk.
struct ResidentScales {
  static constexpr int kChunks = kResidentDepth / kChunkElements;
  NormScale chunks[kChunks];

  __device__ void Load(const NormArgs16& norm) {
    const int first = static_cast<int>(threadIdx.x) % kWarpThreads * 8;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) chunks[c].Load(norm, first + c * kChunkElements);
  }
};

// The block's rows, normed, as operands. A row beyond the last is the last again.
template <typename T, typename Shape>
__device__ void NormResident(const MmaLinearArgs& args, const ResidentScales& scales,
                             int32_t first_row, int32_t num_rows, std::byte* rows) {
  constexpr int kTogether = Shape::kTokens / Shape::kWarps;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  RowChunks<ResidentScales::kChunks> x[kTogether];
#pragma unroll
  for (int m = 0; m < kTogether; ++m) {
    const int32_t row = min(first_row + m * Shape::kWarps + warp, num_rows - 1);
    x[m].Load(reinterpret_cast<const T*>(args.x.data) + row * args.x.stride, args.depth);
  }
  NormalizeRows<T>(
      args.norm, x, args.depth, [&](int c, int32_t) { return scales.chunks[c]; }, [] {},
      [&](int m, int32_t column, const uint4& bits) {
        const int row = m * Shape::kWarps + warp;
        PutPacked(rows + column / kTileDepth * Shape::kRowTileBytes + row / 8 * kPackedBlockBytes,
                  row % 8, column, bits);
      });
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A warp's 16 outputs, from n on, of all the block's tokens. turn: the warp's own.
template <typename T, typename Shape>
__device__ void StoreResident(const MmaLinearArgs& args, const float (&sums)[Shape::kSums],
                              float (*turn)[kTurnStride], int32_t first_row, int32_t num_rows,
                              int32_t n, const float (&bias)[8], const InputPlace& place) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int token = lane / 2;
#pragma unroll
  for (int s = 0; s < Shape::kTokens / 16; ++s) {
    __syncwarp();
    PutSums<2, kTurnStride>(sums + s * 8, turn[0]);
    __syncwarp();
    constexpr float kNoResidual[8] = {};
    float values[8];
    LoadFloats8(&turn[token][lane % 2 * 8], values);
    FinishSums(args, bias, kNoResidual, values);
    Run<T, 8> run;
#pragma unroll
    for (int e = 0; e < 8; ++e) run.values[e] = FromFloat<T>(values[e]);
    const int32_t row = first_row + s * 16 + token;
    if (row < num_rows) place.Put(row, n + lane % 2 * 8, *reinterpret_cast<const uint4*>(&run));
  }
}

// This thread's runs of 4 outputs of the tokens that its block finishes.
template <typename T, typename Shape>
struct ResidentShare {
  Run<T, 4> residual[Shape::kRuns];
  float bias[4];

  __device__ static int Column() { return static_cast<int>(threadIdx.x) % kWarpThreads * 4; }
  __device__ static int InShare(int run) {
    return run * Shape::kWarps + static_cast<int>(threadIdx.x) / kWarpThreads;
  }
  __device__ static int Token(int run) {
    return static_cast<int>(blockIdx.z) * Shape::kShare + InShare(run);
  }
  __device__ void LoadBias(const MmaLinearArgs& args, int32_t first_output) {
#pragma unroll
    for (int e = 0; e < 4; ++e) bias[e] = BiasAt(args, first_output + Column() + e);
  }
  __device__ void LoadResidual(const MmaLinearArgs& args, int32_t first_row, int32_t num_rows,
                               int32_t first_output) {
    if (args.residual.data == nullptr) return;
#pragma unroll
    for (int i = 0; i < Shape::kRuns; ++i) {
      const int32_t row = min(first_row + Token(i), num_rows - 1);
      residual[i] =
          *reinterpret_cast<const Run<T, 4>*>(ResidualAt<T>(args, row, first_output + Column()));
    }
  }
  // `parts` of all blocks of the cluster, in ascending order.
  __device__ void Store(const MmaLinearArgs& args, const float* parts, int32_t first_row,
                        int32_t num_rows, int32_t first_output) const {
#pragma unroll
    for (int i = 0; i < Shape::kRuns; ++i) {
      if (InShare(i) >= Shape::kShare) return;
      const float* from = parts + Token(i) * Shape::kPartStride + Column();
      float4 found[2 * Shape::kBlocks];
#pragma unroll
      for (int s = 0; s < 2 * Shape::kBlocks; ++s) {
        found[s] = LoadFromBlock(from + s % 2 * Shape::kPart, s / 2);
      }
      float total[4] = {found[0].x, found[0].y, found[0].z, found[0].w};
#pragma unroll
      for (int s = 1; s < 2 * Shape::kBlocks; ++s) {
        total[0] += found[s].x;
        total[1] += found[s].y;
        total[2] += found[s].z;
        total[3] += found[s].w;
      }
      float added[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        added[e] = args.residual.data == nullptr ? 0.0f : ToFloat(residual[i].values[e]);
      }
      FinishSums(args, bias, added, total);
      Run<T, 4> run;
#pragma unroll
      for (int e = 0; e < 4; ++e) run.values[e] = FromFloat<T>(total[e]);
      const int32_t row = first_row + Token(i);
      if (row >= num_rows) return;
      *reinterpret_cast<Run<T, 4>*>(OutputAt<T>(args, row, first_output + Column())) = run;
    }
  }
};

#endif  // SPRY_HAS_WARPGROUP_MMA

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    ResidentKernel(const __grid_constant__ MmaLinearArgs args,
                   const __grid_constant__ ResidentCounts counts,
                   const __grid_constant__ InputPlace place, const StepHeader* header) {
#if SPRY_HAS_WARPGROUP_MMA
  constexpr bool kSplit = Shape::kBlocks > 1;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * Shape::kTokens;
  // Written by stage, long ago (overlap.cuh).
  const int32_t num_rows = counts.exact ? NumRows(args.x.rows, *header) : counts.rows;
  if (first_row >= num_rows) return AwaitPrevious();  // the whole cluster
  const int32_t first_output = static_cast<int32_t>(blockIdx.y) * kResidentOutputs;
  const int first_tile = static_cast<int>(blockIdx.z) * kResidentTiles;
  const uint4* weights =
      args.weight +
      (int64_t{first_output} / kMmaOutputs * counts.all_tiles + first_tile) * kTileQuads;
  extern __shared__ __align__(128) std::byte shared[];
  std::byte* rows = shared + Shape::kWeightBytes;
  __shared__ SharedBarrier weights_here;
  __shared__ SharedBarrier rows_here[kResidentChunks];
  const bool fetches = warp == 0 && IsElected();
  if (fetches) {
    weights_here.Init(1);
    for (int c = 0; c < kResidentChunks; ++c) rows_here[c].Init(1);
    SharedBarrier::FenceInit();
    weights_here.ArriveAndExpect(Shape::kWeightBytes);
    for (int w = 0; w < Shape::kWarps; ++w) {
      weights_here.Copy(shared + w * Shape::kWarpBytes,
                        weights + int64_t{w} * counts.all_tiles * kTileQuads, Shape::kWarpBytes);
    }
  }
  TileOfWeights kept[kSharedChunks][kChunkTiles];  // the second half of K
  {
    const uint4* from =
        weights + (int64_t{warp} * counts.all_tiles + kSharedTiles) * kTileQuads + lane;
#pragma unroll
    for (int i = 0; i < kSharedTiles; ++i) {
      kept[i / kChunkTiles][i % kChunkTiles].Load(from + i * kTileQuads);
    }
  }
  ResidentScales scales;
  if constexpr (Shape::kNorms) scales.Load(args.norm);
  const int32_t n = first_output + warp * kMmaOutputs;
  float bias[8] = {};
  ResidentShare<T, Shape> share;
  if constexpr (kSplit) {
    share.LoadBias(args, first_output);
  } else {
    if (args.bias != nullptr) LoadFloats8(args.bias + n + lane % 2 * 8, bias);
  }
  __syncthreads();
  AwaitPrevious();
  if constexpr (Shape::kNorms) {
    NormResident<T, Shape>(args, scales, first_row, num_rows, rows);
    __syncthreads();
  } else if (fetches) {
    const std::byte* from =
        args.packed + (int64_t{blockIdx.x} * counts.all_tiles + first_tile) * Shape::kRowTileBytes;
    for (int c = 0; c < kResidentChunks; ++c) {
      rows_here[c].ArriveAndExpect(Shape::kChunkBytes);
      rows_here[c].Copy(rows + c * Shape::kChunkBytes, from + c * Shape::kChunkBytes,
                        Shape::kChunkBytes);
    }
  }
  __syncwarp();
  if constexpr (kSplit) share.LoadResidual(args, first_row, num_rows, first_output);

  float totals[Shape::kSums];
  float sums[Shape::kSums];
  const auto* mine = reinterpret_cast<const uint4*>(shared + warp * Shape::kWarpBytes) + lane;
  weights_here.Await(0);
#pragma unroll
  for (int c = 0; c < kResidentChunks; ++c) {
    if constexpr (!Shape::kNorms) rows_here[c].Await(0);
    const std::byte* chunk = rows + c * Shape::kChunkBytes;
    TileOfWeights a[kChunkTiles];
#pragma unroll
    for (int i = 0; i < kChunkTiles; ++i) {
      if (c >= kSharedChunks) {
        a[i] = kept[c % kSharedChunks][i];
      } else {
        const uint4* tile = mine + (c * kChunkTiles + i) * kTileQuads;
        a[i] = {tile[0], tile[kWarpThreads]};
      }
    }
    if constexpr (kSplit) {
      MultiplyChunk<Shape, T>(c < kSharedChunks ? totals : sums, a, chunk, c % kSharedChunks > 0);
    } else if (c == 0) {
      MultiplyChunk<Shape, T>(totals, a, chunk, false);
    } else {
      MultiplyChunk<Shape, T>(sums, a, chunk, false);
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) totals[i] += sums[i];
    }
  }
  if constexpr (kSplit) {
    auto* parts = reinterpret_cast<float*>(shared);
    __syncthreads();  // all warps have read their weights
    float* part = parts + warp * kMmaOutputs;
    PutSums<Shape::kEights, Shape::kPartStride>(totals, part);
    PutSums<Shape::kEights, Shape::kPartStride>(sums, part + Shape::kPart);
    ClusterBarrier();
    share.Store(args, parts, first_row, num_rows, first_output);
    ClusterBarrier();  // nobody leaves while others read
  } else {
    auto* turn = reinterpret_cast<float(*)[kTurnStride]>(shared + warp * Shape::kWarpBytes);
    StoreResident<T, Shape>(args, totals, turn, first_row, num_rows, n, bias, place);
  }
#endif
}

// Packs the rows unless who made them has done so, or the kernel does.
template <typename T, typename Shape>
void LaunchResidentShape(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                         const LaunchContext& context) {
  constexpr auto kKernel = ResidentKernel<T, Shape>;
  const int32_t tiles = args.depth / kTileDepth;
  if (!Shape::kNorms) {
    const InputPlace place{.data = args.packed, .eights = Shape::kEights, .tiles = tiles};
    LaunchRowsTo<T>(place, args, rows, context);
  }
  const InputPlace products = PlaceOf(args.taker, args.y, rows, context);
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes);
  const ResidentCounts counts{.rows = rows, .exact = rows > kMaxFewRows, .all_tiles = tiles};
  LaunchOverlapped(context,
                   {.blocks = dim3(CeilDiv(rows, Shape::kTokens), args.outputs / kResidentOutputs,
                                   Shape::kBlocks),
                    .threads = Shape::kThreads,
                    .shared_bytes = Shape::kBytes,
                    .cluster = Shape::kBlocks},
                   kKernel, args, counts, products, state.header);
}

// Four blocks along rows, or more.
template <typename T, int kBlocks>
void LaunchResidentOf(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                      const LaunchContext& context) {
  if (ResidentEights(rows) == 4) {
    return LaunchResidentShape<T, ResidentShape<32, kBlocks>>(args, rows, state, context);
  }
  LaunchResidentShape<T, ResidentShape<64, kBlocks>>(args, rows, state, context);
}

// False: other kernels are faster.
template <typename T>
bool LaunchResident(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                    const LaunchContext& context) {
  if (!IsResident(args.outputs, args.depth, context.warpgroups) ||
      !TakesResident(args.depth, rows)) {
    return false;
  }
  if (args.depth > kResidentDepth) {
    LaunchResidentOf<T, kResidentBlocks>(args, rows, state, context);
    return true;
  }
  // Few blocks are slow, and residuals are for those that share K.
  if (args.outputs < kMinResidentOutputs || args.residual.data != nullptr) return false;
  if (rows > kMaxNormedResident) {
    LaunchResidentOf<T, 1>(args, rows, state, context);
  } else if (args.norm.kind == NormKind::kNone) {
    LaunchResidentShape<T, ResidentShape<16, 1>>(args, rows, state, context);
  } else {
    LaunchResidentShape<T, ResidentShape<16, 1, true>>(args, rows, state, context);
  }
  return true;
}

}  // namespace spry::cuda
