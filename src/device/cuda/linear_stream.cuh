// linear of large weights on Hopper's warpgroup products: the weights stream through shared memory
// at the rate of memory, whatever there is to do with them.
//
// A block makes tiles of outputs in turn, 16 outputs a warp. One thread fetches weights and packed
// rows (linear_input.cuh) by bulk copies, some stages ahead, across tiles and, for weights, before
// the kernel before this one has ended. Rows come on the same way as weights: a load would wait
// behind them.
//
// Where there are outputs enough for every block, a block has all of K. Else a cluster of kSegments
// blocks shares K, a segment each, so that a block needs but an eighth of every row; the segments
// of a tile are then sent to the blocks that finish them, a share of the tokens each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/draw.cuh"
#include "device/cuda/linear_input.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/linear_warpgroup.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/shared_barrier.cuh"
#include "device/cuda/warpgroup_mma.cuh"

namespace spry::cuda {

inline constexpr int kStreamTiles = 2;                              // of K in a stage
inline constexpr int kGroupBytes = kStreamTiles * kTileQuads * 16;  // 16 outputs of a stage
// Of a multiprocessor's shared memory, so that small kernels before and after fit beside it; all
// where they do not fit for its registers.
inline constexpr int kStreamBytes = 210 << 10;
inline constexpr int kMostStreamBytes = 222 << 10;
inline constexpr int kMostStreamStages = 6;

// kSplit: a cluster shares K. Smaller tiles then: what a cluster exchanges while weights come in
// costs little, what it exchanges after the last of them does.
template <int kTokens_, bool kSplit_>
struct StreamShape {
  static constexpr int kTokens = kTokens_;
  static constexpr bool kSplit = kSplit_;
  static constexpr int kGroups = kSplit ? 9 : 16;  // of 16 outputs, in a tile
  static constexpr int kOutputs = kGroups * kMmaOutputs;
  static constexpr int kWarpgroups = (kGroups + kWarpgroupWarps - 1) / kWarpgroupWarps;
  static constexpr int kWarps = kWarpgroups * kWarpgroupWarps;
  static constexpr int kConsumers = kWarpgroups * kWarpgroupThreads;
  // One thread beyond them fetches. Where sums and totals take many registers it comes with a whole
  // warpgroup, whose registers the consumers get: 640 threads with 96 each are 512 with 112 and 128
  // with 32.
  static constexpr bool kDonates = !kSplit && kTokens > 32;
  static constexpr int kThreads = kConsumers + (kDonates ? kWarpgroupThreads : kWarpThreads);
  static constexpr int kEights = kTokens / 8;
  static constexpr int kSixteens = kTokens / 16;
  static constexpr int kSums = kTokens / 2;  // of a consumer
  static constexpr int kRowTileBytes = kEights * kPackedBlockBytes;
  static constexpr int kRowBytes = kStreamTiles * kRowTileBytes;  // of a stage
  static constexpr int kWeightBytes = kGroups * kGroupBytes;      // of a stage
  static constexpr int kStageBytes = kWeightBytes + kRowBytes;
  // A block's segment of a tile, [token][output] in f32: sent in shares of the tokens.
  static constexpr int kShare = kTokens / kSegments;
  static constexpr int kPartStride = kOutputs + 4;
  static constexpr int kShareBytes = kShare * kPartStride * 4;
  static constexpr int kPartBytes = kSegments * kShareBytes;
  static constexpr int kRestBytes = kSplit ? 2 * kPartBytes : kWarps * kTurnBytes;
  static constexpr int kStages = std::min(
      ((kDonates ? kMostStreamBytes : kStreamBytes) - kRestBytes) / kStageBytes, kMostStreamStages);
  static constexpr int kBytes = kStages * kStageBytes + kRestBytes;
};

struct StreamCounts {
  int32_t rows = 0;       // of the bucket
  bool exact = false;     // rows beyond the step's true count are left out
  int32_t stages = 0;     // of a segment
  int32_t all_tiles = 0;  // of K
};

template <typename Shape>
struct StreamSpace {
  std::byte* stages;
  std::byte* rest;
  SharedBarrier* full;   // [kStages], of shared memory, as the next ones
  SharedBarrier* empty;  // [kStages]
  // Of a split tile: this block's share of all segments is here, and those who got a share of this
  // block's segment have taken it.
  SharedBarrier* here;
  SharedBarrier* taken;

  __device__ std::byte* Weights(int stage) const { return stages + stage * Shape::kStageBytes; }
  __device__ std::byte* Rows(int stage) const { return Weights(stage) + Shape::kWeightBytes; }
  __device__ float* sent() const { return reinterpret_cast<float*>(rest); }
  __device__ std::byte* received() const { return rest + Shape::kPartBytes; }
};

// What a block, or a cluster, makes: groups of 16 outputs from `first` on, in tiles as equal as can
// be.
struct StreamCourse {
  int first = 0;
  int groups = 0;
  int tiles = 0;

  __device__ static StreamCourse Of(int32_t outputs, int tile_groups) {
    const int64_t all = outputs / kMmaOutputs;
    const auto begin = static_cast<int>(all * blockIdx.y / gridDim.y);
    const int groups = static_cast<int>(all * (blockIdx.y + 1) / gridDim.y) - begin;
    return {begin, groups, (groups + tile_groups - 1) / tile_groups};
  }
  // Where a tile begins; that of tile `tiles` is the end.
  __device__ int Begin(int tile) const { return first + groups * tile / tiles; }
};

#if SPRY_HAS_WARPGROUP_MMA

// By one thread: `stages` of every tile, from `first_tile` of K on.
template <typename Shape>
__device__ void SendStages(const MmaLinearArgs& args, int first_tile, int stages, int all_tiles,
                           const StreamCourse& course, const StreamSpace<Shape>& space) {
  const std::byte* rows =
      args.packed + (int64_t{blockIdx.x} * all_tiles + first_tile) * Shape::kRowTileBytes;
  const auto send_rows = [&](int stage, int i) {
    space.full[stage].Copy(space.Rows(stage), rows + int64_t{i} * Shape::kRowBytes,
                           Shape::kRowBytes);
  };
  RingPlace<Shape::kStages> at;
  const int early = min(course.tiles * stages, Shape::kStages);  // their rows come later
  int sent = 0;
  for (int tile = 0; tile < course.tiles; ++tile) {
    const int group = course.Begin(tile);
    const int groups = course.Begin(tile + 1) - group;
    const uint4* from = args.weight + (int64_t{group} * all_tiles + first_tile) * kTileQuads;
    for (int i = 0; i < stages; ++i, from += kStreamTiles * kTileQuads, at.Step()) {
      SharedBarrier& full = space.full[at.stage];
      space.empty[at.stage].Await(at.phase ^ 1);
      full.ArriveAndExpect(groups * kGroupBytes + Shape::kRowBytes);
      if (sent >= early) send_rows(at.stage, i);
      std::byte* to = space.Weights(at.stage);
#pragma unroll 4
      for (int g = 0; g < groups; ++g) {
        full.Copy(to + g * kGroupBytes, from + int64_t{g} * all_tiles * kTileQuads, kGroupBytes);
      }
      if (++sent != early) continue;
      AwaitPrevious();
      for (int s = 0; s < early; ++s) send_rows(s, s % stages);
    }
  }
}

// The products of one segment of a tile.
template <typename Shape, typename T>
__device__ void MultiplySegment(int stages, bool works, const StreamSpace<Shape>& space,
                                RingPlace<Shape::kStages>& at, float (&sums)[Shape::kSums]) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int slot = min(warp, Shape::kGroups - 1) * kGroupBytes + lane * 16;
#pragma unroll 1
  for (int i = 0; i < stages; ++i, at.Step()) {
    space.full[at.stage].Await(at.phase);
    if (works) {
      const auto* weights = reinterpret_cast<const uint4*>(space.Weights(at.stage) + slot);
      const auto rows = static_cast<uint32_t>(__cvta_generic_to_shared(space.Rows(at.stage)));
      uint4 a[2 * kStreamTiles];
#pragma unroll
      for (int n = 0; n < 2 * kStreamTiles; ++n) a[n] = weights[n * kWarpThreads];
      WarpgroupArrive();
#pragma unroll
      for (int n = 0; n < 2 * kStreamTiles; ++n) {
        const uint32_t b = rows + n / 2 * Shape::kRowTileBytes + n % 2 * 2 * kCoreBytes;
        WarpgroupMma(T{}, sums, a[n], OperandAt(b, kPackedBlockBytes), i > 0 || n > 0);
      }
      WarpgroupCommit();
      WarpgroupWait();
    }
    __syncwarp();  // all lanes have read the stage
    if (lane == 0) space.empty[at.stage].Arrive();
  }
}

template <typename Shape>
__device__ void AwaitConsumers() {
  asm volatile("barrier.sync 1, %0;" ::"n"(Shape::kConsumers) : "memory");
}

// By the consumers: tiles over all of K.
template <typename T, typename Y, typename Shape>
__device__ void MakeWholeTiles(const MmaLinearArgs& args, const StreamCounts& counts,
                               const StreamCourse& course, int32_t first_row, int32_t num_rows,
                               const StreamSpace<Shape>& space) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  __shared__ RowDraw drawn_rows[BlockDraws<Y, Shape>::kRows];
  __shared__ unsigned long long best_draws[BlockDraws<Y, Shape>::kRows];
  const BlockDraws<Y, Shape> draws{drawn_rows, best_draws};
  auto* turn = reinterpret_cast<float(*)[kTurnStride]>(space.rest + warp * kTurnBytes);
  AwaitPrevious();
  draws.Load(args.draw, first_row);
  if (draws.On(args.draw)) AwaitConsumers<Shape>();
  RingPlace<Shape::kStages> at;
#pragma unroll 1
  for (int tile = 0; tile < course.tiles; ++tile) {
    const int group = course.Begin(tile);
    const int groups = course.Begin(tile + 1) - group;
    const bool works = warp / kWarpgroupWarps * kWarpgroupWarps < groups;
    float totals[Shape::kSums];
    float sums[Shape::kSums];
#pragma unroll 1
    for (int segment = 0; segment < kSegments; ++segment) {
      MultiplySegment<Shape, T>(counts.stages, works, space, at, sums);
#pragma unroll
      for (int i = 0; i < Shape::kSums; ++i) {
        totals[i] = segment == 0 ? sums[i] : totals[i] + sums[i];
      }
    }
    if (warp < groups) {
      StoreTile<Shape, Y>(args, totals, turn, first_row, num_rows, (group + warp) * kMmaOutputs,
                          draws);
    }
    if (draws.On(args.draw) && tile < kRoundsTold) draws.Exchange(args.draw, first_row);
  }
  if (!draws.On(args.draw)) return;
  AwaitConsumers<Shape>();
  draws.Leave(args.draw, first_row);
}

// By one thread: the shares of a segment to the other blocks, which finish them.
template <typename Shape>
__device__ void SendShares(const StreamSpace<Shape>& space) {
  space.here->ArriveAndExpect(Shape::kPartBytes - Shape::kShareBytes);
  const auto segment = static_cast<int>(blockIdx.z);
  const auto* sent = reinterpret_cast<const std::byte*>(space.sent());
  for (int rank = 0; rank < kSegments; ++rank) {
    if (rank == segment) continue;
    space.here->CopyToBlock(rank, space.received() + segment * Shape::kShareBytes,
                            sent + rank * Shape::kShareBytes, Shape::kShareBytes);
  }
}

// Four outputs of one token over all segments, `offset` bytes into each share; this block's own was
// not sent.
template <typename Shape>
__device__ void AddShares(const StreamSpace<Shape>& space, int offset, float (&total)[4]) {
  const auto own = static_cast<int>(blockIdx.z);
  const auto* sent = reinterpret_cast<const std::byte*>(space.sent());
#pragma unroll
  for (int s = 0; s < kSegments; ++s) {
    const std::byte* shares = s == own ? sent : space.received();
    const float4 v = *reinterpret_cast<const float4*>(shares + s * Shape::kShareBytes + offset);
    total[0] = s == 0 ? v.x : total[0] + v.x;
    total[1] = s == 0 ? v.y : total[1] + v.y;
    total[2] = s == 0 ? v.z : total[2] + v.z;
    total[3] = s == 0 ? v.w : total[3] + v.w;
  }
}

// By the consumers: one segment of every tile, and a share of all of its segments.
template <typename T, typename Y, typename Shape>
__device__ void MakeSplitTiles(const MmaLinearArgs& args, const StreamCounts& counts,
                               const StreamCourse& course, int32_t first_row, int32_t num_rows,
                               const StreamSpace<Shape>& space) {
  constexpr int kRuns = Shape::kOutputs / 4;  // of a token
  static_assert(Shape::kShare * kRuns <= Shape::kConsumers);
  const int thread = static_cast<int>(threadIdx.x);
  const int token = thread / kRuns;  // of the share
  const int column = thread % kRuns * 4;
  const int32_t row = first_row + static_cast<int>(blockIdx.z) * Shape::kShare + token;
  const bool finishes = token < Shape::kShare && row < num_rows;
  AwaitPrevious();
  AwaitInCluster();
  RingPlace<Shape::kStages> at;
#pragma unroll 1
  for (int tile = 0; tile < course.tiles; ++tile) {
    float sums[Shape::kSums];
    const int group = course.Begin(tile);
    const int groups = course.Begin(tile + 1) - group;
    const bool works = thread / kWarpgroupThreads * kWarpgroupWarps < groups;
    MultiplySegment<Shape, T>(counts.stages, works, space, at, sums);
    space.taken->AwaitCluster((tile & 1) ^ 1);
    if (const int warp = thread / kWarpThreads; warp < groups) {
      PutSums<Shape::kEights, Shape::kPartStride>(sums, space.sent() + warp * kMmaOutputs);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    AwaitConsumers<Shape>();
    if (thread < kWarpThreads && IsElected()) SendShares<Shape>(space);
    const int32_t n = group * kMmaOutputs + column;
    const bool mine = finishes && column < groups * kMmaOutputs;
    float bias[4] = {};
    float residual[4] = {};
    if (mine) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        bias[e] = BiasAt(args, n + e);
        residual[e] = LoadResidual<Y>(args, row, n + e);
      }
    }
    space.here->Await(tile & 1);
    float total[4] = {};
    if (mine) {
      AddShares<Shape>(space, (token * Shape::kPartStride + column) * 4, total);
    }
    AwaitConsumers<Shape>();
    if (thread < kSegments) space.taken->ArriveAt(thread);
    if (!mine) continue;
    FinishSums(args, bias, residual, total);
    Run<Y, 4> values;
#pragma unroll
    for (int e = 0; e < 4; ++e) values.values[e] = FromFloat<Y>(total[e]);
    *reinterpret_cast<Run<Y, 4>*>(OutputAt<Y>(args, row, n)) = values;
  }
  // Nobody leaves while others take what it has sent.
  space.taken->AwaitCluster((course.tiles & 1) ^ 1);
}

#endif  // SPRY_HAS_WARPGROUP_MMA

template <typename T, typename Y, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    StreamKernel(const __grid_constant__ MmaLinearArgs args,
                 const __grid_constant__ StreamCounts counts, const StepHeader* header) {
#if SPRY_HAS_WARPGROUP_MMA
  LetNextStart();
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * Shape::kTokens;
  // Written by stage, long ago (overlap.cuh).
  const int32_t num_rows = counts.exact ? NumRows(args.x.rows, *header) : counts.rows;
  if (first_row >= num_rows) return AwaitPrevious();  // the whole cluster
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ SharedBarrier barriers[2 * Shape::kStages + 2];
  const StreamSpace<Shape> space{.stages = shared,
                                 .rest = shared + Shape::kStages * Shape::kStageBytes,
                                 .full = barriers,
                                 .empty = barriers + Shape::kStages,
                                 .here = barriers + 2 * Shape::kStages,
                                 .taken = barriers + 2 * Shape::kStages + 1};
  if (threadIdx.x == 0) {
    for (int s = 0; s < Shape::kStages; ++s) {
      space.full[s].Init(1);
      space.empty[s].Init(Shape::kWarps);
    }
    space.here->Init(1);
    space.taken->Init(kSegments);
    SharedBarrier::FenceInit();
  }
  __syncthreads();
  if constexpr (Shape::kSplit) ArriveInCluster();
  const StreamCourse course = StreamCourse::Of(args.outputs, Shape::kGroups);
  if (threadIdx.x < Shape::kConsumers) {
    if constexpr (Shape::kSplit) {
      MakeSplitTiles<T, Y, Shape>(args, counts, course, first_row, num_rows, space);
    } else {
      if constexpr (Shape::kDonates) asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");
      MakeWholeTiles<T, Y, Shape>(args, counts, course, first_row, num_rows, space);
    }
  } else {
    if constexpr (Shape::kDonates) asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x < Shape::kConsumers + kWarpThreads && IsElected()) {
      const int segments = Shape::kSplit ? 1 : kSegments;
      SendStages<Shape>(args, static_cast<int>(blockIdx.z) * counts.stages * kStreamTiles,
                        counts.stages * segments, counts.all_tiles, course, space);
    }
    __syncwarp();
    if constexpr (Shape::kSplit) AwaitInCluster();
  }
#endif
}

// Clusters that run at once.
template <typename T>
int32_t CountStreamClusters() {
  using Shape = StreamShape<64, true>;
  constexpr auto kKernel = StreamKernel<T, T, Shape>;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {1, 1, kSegments};
  const cudaLaunchConfig_t config = {.gridDim = dim3(1, 1, kSegments),
                                     .blockDim = dim3(Shape::kThreads),
                                     .dynamicSmemBytes = Shape::kBytes,
                                     .attrs = &attribute,
                                     .numAttrs = 1};
  int clusters = 0;
  const bool counted = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            Shape::kBytes) == cudaSuccess &&
                       cudaOccupancyMaxActiveClusters(&clusters, kKernel, &config) == cudaSuccess;
  return counted ? clusters : 0;
}

template <typename T, typename Y, typename Shape>
void LaunchStreamShape(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                       const LaunchContext& context) {
  constexpr auto kKernel = StreamKernel<T, Y, Shape>;
  const InputPlace place{
      .data = args.packed, .eights = Shape::kEights, .tiles = args.depth / kTileDepth};
  LaunchRowsTo<T>(place, args, rows, context);
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes);
  const StreamCounts counts{.rows = rows,
                            .exact = rows > kMaxFewRows,
                            .stages = args.depth / (kSegments * kStreamTiles * kTileDepth),
                            .all_tiles = args.depth / kTileDepth};
  const int32_t groups = CeilDiv(rows, Shape::kTokens);
  const int32_t at_once = Shape::kSplit ? context.clusters : context.processors;
  const int32_t most = std::clamp(at_once / groups, 1, args.outputs / kMmaOutputs);
  const int cluster = Shape::kSplit ? kSegments : 1;
  LaunchOverlapped(context,
                   {.blocks = dim3(groups, most, cluster),
                    .threads = Shape::kThreads,
                    .shared_bytes = Shape::kBytes,
                    .cluster = cluster},
                   kKernel, args, counts, state.header);
}

template <typename T, typename Y, bool kSplit>
void LaunchStreamOf(const MmaLinearArgs& args, int32_t rows, int32_t eights, const StepState& state,
                    const LaunchContext& context) {
  switch (eights) {
    case 2: return LaunchStreamShape<T, Y, StreamShape<16, kSplit>>(args, rows, state, context);
    case 4: return LaunchStreamShape<T, Y, StreamShape<32, kSplit>>(args, rows, state, context);
    default: LaunchStreamShape<T, Y, StreamShape<64, kSplit>>(args, rows, state, context);
  }
}

// False: other kernels are faster.
template <typename T, typename Y>
bool LaunchStream(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                  const LaunchContext& context) {
  constexpr bool kFloats = std::is_same_v<Y, float>;
  if (!IsStreamed(args.outputs, args.depth, context.warpgroups)) return false;
  const int32_t eights = StreamEights(args.outputs, kFloats, rows, context);
  if (eights == 0) return false;
  if (StreamsWhole(args.outputs, kFloats, context)) {
    LaunchStreamOf<T, Y, false>(args, rows, eights, state, context);
  } else if constexpr (!kFloats) {
    LaunchStreamOf<T, Y, true>(args, rows, eights, state, context);
  }
  return true;
}

}  // namespace spry::cuda
