// linear of many rows on Hopper's warpgroup products: what limits it is shared memory, from where
// the tensor cores take rows. A block makes tiles of kOutputs outputs by kTokens rows in turn, 64
// outputs a warpgroup, each over all of K. One warpgroup fetches a ring of stages ahead, across
// tiles and, for weights, before the kernel before this one has ended: packed rows
// (linear_input.cuh) by one bulk copy a stage; weights by its threads, since a bulk copy takes 69
// ns of a multiprocessor however small it is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/cuda/linear_input.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/shared_barrier.cuh"
#include "device/cuda/warpgroup_mma.cuh"
#include "device/cuda/weight_ring.cuh"

namespace spry::cuda {

inline constexpr int kPipelinedBytes = 220 << 10;  // of shared memory
inline constexpr int kMostPipelinedStages = 16;
inline constexpr int kTurnTokens = 64;  // that are turned around at a time

template <int kTokens_, int kStageTiles_>
struct PipelinedShape {
  static constexpr int kTokens = kTokens_;
  static constexpr int kStageTiles = kStageTiles_;  // of K
  static constexpr int kWarpgroups = 2;
  static constexpr int kOutputs = kWarpgroups * kWarpgroupOutputs;
  static_assert(kOutputs == kPipelinedOutputs);
  static constexpr int kWarps = kWarpgroups * kWarpgroupWarps;  // each makes 16 outputs
  static constexpr int kConsumers = kWarpgroups * kWarpgroupThreads;
  static constexpr int kProducers = kWarpgroupThreads;
  static constexpr int kThreads = kConsumers + kProducers;
  // Those that fetch leave most of their registers to the others.
  static constexpr int kConsumerRegisters = 232;
  static constexpr int kProducerRegisters = 40;
  static constexpr int kSums = kTokens / 2;  // of a consumer
  static constexpr int kEights = kTokens / 8;
  static constexpr int kGroupBytes = kStageTiles * kTileBytes;  // 16 outputs of a stage
  static constexpr int kWeightBytes = kWarps * kGroupBytes;     // of a stage
  static constexpr int kRowTileBytes = kEights * kPackedBlockBytes;
  static constexpr int kRowBytes = kStageTiles * kRowTileBytes;  // of a stage
  static constexpr int kStageBytes = kWeightBytes + kRowBytes;
  static constexpr int kTurnBytes = kTurnTokens * kWarpgroupOutputs * 2;  // of a warpgroup
  static constexpr int kTurnsBytes = kWarpgroups * kTurnBytes;
  static constexpr int kStages =
      std::min((kPipelinedBytes - kTurnsBytes) / kStageBytes, kMostPipelinedStages);
  static constexpr int kBytes = kStages * kStageBytes + kTurnsBytes;
  static_assert(kTokens % kTurnTokens == 0);
};

struct PipelinedCounts {
  int32_t rows = 0;         // of the bucket
  bool exact = false;       // rows beyond the step's true count are left out
  int32_t all_tiles = 0;    // of K
  int32_t segments = 0;     // of K
  int32_t per_segment = 0;  // stages
};

template <typename Shape>
struct PipelinedSpace {
  std::byte* stages;
  SharedBarrier* full;   // [kStages], of shared memory, as the next ones
  SharedBarrier* empty;  // [kStages]

  __device__ std::byte* Weights(int stage) const { return stages + stage * Shape::kStageBytes; }
  __device__ std::byte* Rows(int stage) const { return Weights(stage) + Shape::kWeightBytes; }
  __device__ std::byte* turns() const { return stages + Shape::kStages * Shape::kStageBytes; }
};

// What a block makes in turn: tiles of outputs, of each all rows before the next.
template <typename Shape>
struct PipelinedCourse {
  int32_t row_tiles;
  int32_t tiles;

  __device__ PipelinedCourse(int32_t outputs, int32_t num_rows)
      : row_tiles((num_rows + Shape::kTokens - 1) / Shape::kTokens),
        tiles(row_tiles * ((outputs + Shape::kOutputs - 1) / Shape::kOutputs)) {}
  __device__ int32_t RowTile(int32_t tile) const { return tile % row_tiles; }
  __device__ int32_t FirstOutput(int32_t tile) const { return tile / row_tiles * Shape::kOutputs; }
};

#if SPRY_HAS_WARPGROUP_MMA

// By the producers: the stages of every tile. Each warp has some of the groups of 16 outputs;
// beyond the last output they are the last again.
template <typename Shape>
__device__ void SendTiles(const MmaLinearArgs& args, const PipelinedCounts& counts,
                          const PipelinedCourse<Shape>& course,
                          const PipelinedSpace<Shape>& space) {
  const int warp = static_cast<int>(threadIdx.x - Shape::kConsumers) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int stages = counts.segments * counts.per_segment;
  const bool sends_rows = warp == 0 && IsElected();
  const int early = min(stages, Shape::kStages);  // whose rows come later
  bool waited = false;
  RingPlace<Shape::kStages> at;
#pragma unroll 1
  for (auto tile = static_cast<int32_t>(blockIdx.x); tile < course.tiles; tile += gridDim.x) {
    int32_t from[Shape::kWarpgroups];  // in 16-byte words
#pragma unroll
    for (int i = 0; i < Shape::kWarpgroups; ++i) {
      const int32_t group = min(course.FirstOutput(tile) / kMmaOutputs + i * kWarpgroupWarps + warp,
                                args.outputs / kMmaOutputs - 1);
      from[i] = group * counts.all_tiles * kTileQuads + lane;
    }
    const std::byte* rows = args.packed + int64_t{course.RowTile(tile)} * stages * Shape::kRowBytes;
#pragma unroll 1
    for (int k = 0; k < stages; ++k, at.Step()) {
      SharedBarrier& full = space.full[at.stage];
      space.empty[at.stage].Await(at.phase ^ 1);
      if (sends_rows) {
        full.ArriveAndExpect(Shape::kRowBytes);
        if (waited) {
          full.Copy(space.Rows(at.stage), rows + int64_t{k} * Shape::kRowBytes, Shape::kRowBytes);
        }
      }
      std::byte* to = space.Weights(at.stage) + warp * Shape::kGroupBytes + lane * 16;
#pragma unroll
      for (int i = 0; i < Shape::kWarpgroups; ++i) {
#pragma unroll
        for (int n = 0; n < 2 * Shape::kStageTiles; ++n) {
          CopyAsync16(to + i * kWarpgroupWarps * Shape::kGroupBytes + n * kWarpThreads * 16,
                      args.weight + from[i] + n * kWarpThreads, true);
        }
        from[i] += Shape::kStageTiles * kTileQuads;
      }
      full.ArriveWithCopies();
      if (waited || k + 1 < early) continue;
      waited = true;
      if (!sends_rows) continue;
      AwaitPrevious();
#pragma unroll 1
      for (int s = 0; s < early; ++s) {
        space.full[s].Copy(space.Rows(s), rows + s * Shape::kRowBytes, Shape::kRowBytes);
      }
    }
  }
}

// By the consumers: all products of a tile. Some are on their way while the weights of the next
// come from shared memory and the stage before is given back.
template <typename T, typename Shape>
__device__ void MultiplyTile(const PipelinedCounts& counts, const PipelinedSpace<Shape>& space,
                             RingPlace<Shape::kStages>& at, float (&totals)[Shape::kSums]) {
  constexpr int kOperands = Shape::kStageTiles;  // of a group, which are on their way together
  constexpr int kGroups = 2;                     // of a stage
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  uint4 a[kGroups][kOperands];
  const auto load = [&](int group) __attribute__((always_inline)) {
    const auto* from =
        reinterpret_cast<const uint4*>(space.Weights(at.stage) + warp * Shape::kGroupBytes) + lane;
#pragma unroll
    for (int i = 0; i < kOperands; ++i) {
      a[group][i] = from[(group * kOperands + i) * kWarpThreads];
    }
  };
  const auto give_back = [&](int stage) __attribute__((always_inline)) {
    if (lane == 0) space.empty[stage].Arrive();
  };
  float sums[Shape::kSums] = {};  // set, or the compiler would wait for every product
#pragma unroll
  for (int i = 0; i < Shape::kSums; ++i) totals[i] = 0.0f;
  int left = counts.segments * counts.per_segment;
  space.full[at.stage].Await(at.phase);
  load(0);
#pragma unroll 1
  for (int segment = 0; segment < counts.segments; ++segment) {
#pragma unroll 1
    for (int k = 0; k < counts.per_segment; ++k) {
      const auto rows = static_cast<uint32_t>(__cvta_generic_to_shared(space.Rows(at.stage)));
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        WarpgroupArrive();
#pragma unroll
        for (int i = 0; i < kOperands; ++i) {
          const int j = g * kOperands + i;
          const uint32_t b = rows + j / 2 * Shape::kRowTileBytes + j % 2 * 2 * kCoreBytes;
          WarpgroupMma(T{}, sums, a[g][i], OperandAt(b, kPackedBlockBytes), j > 0 || k > 0);
        }
        WarpgroupCommit();
        WarpgroupWait<1>();
        if (g == 0 && segment + k > 0) give_back(at.Before());
        if (g + 1 < kGroups) load(g + 1);
      }
      at.Step();
      if (--left == 0) continue;
      space.full[at.stage].Await(at.phase);
      load(0);
    }
    WarpgroupWait();
    TakeSums(sums);
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) totals[i] += sums[i];
  }
  give_back(at.Before());
}

// A warpgroup's 64 outputs, from n on, of all the block's tokens, kTurnTokens at a time: through
// shared memory, from where whole lines of the rows are stored. There a token has 8 pieces of 8
// outputs, in an order by which neighbouring tokens meet all banks.
template <typename T, typename Shape>
__device__ void StoreProducts(const MmaLinearArgs& args, float (&sums)[Shape::kSums],
                              std::byte* turn, int32_t first_row, int32_t num_rows, int32_t n) {
  using Pair = typename PairOf<T>::Type;
  int thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));  // so that addresses are made here, not kept from tile to tile
  const int warpgroup = thread / kWarpgroupThreads;
  thread %= kWarpgroupThreads;
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  const auto piece_at = [&](int token, int piece) __attribute__((always_inline)) {
    return turn + token * (kWarpgroupOutputs * 2) + (piece ^ token % 8) * 16;
  };
  const auto await_warpgroup = [&] { AwaitNamed(1 + warpgroup, kWarpgroupThreads); };
  {
    float bias[Shape::kSums];
    const int32_t mine = min(n + warp * kMmaOutputs, args.outputs - kMmaOutputs) + lane / 4;
    const float low = BiasAt(args, mine);
    const float high = BiasAt(args, mine + 8);
#pragma unroll
    for (int i = 0; i < Shape::kSums; ++i) bias[i] = i / 2 % 2 == 0 ? low : high;
    ActivateSums(args, bias, sums);
  }
  constexpr int kRuns = kTurnTokens * kWarpgroupOutputs / 8 / kWarpgroupThreads;  // of a thread
  constexpr int kStep = kTurnTokens / kRuns;
  const int32_t column = n + thread % 8 * 8;
  const bool inside = column < args.outputs;
#pragma unroll
  for (int done = 0; done < Shape::kTokens; done += kTurnTokens) {
    const int32_t row = first_row + done;
    await_warpgroup();  // who has stored the tokens before
    if (args.residual.data != nullptr) {
#pragma unroll
      for (int i = 0; i < kRuns; ++i) {
        const int token = i * kStep + thread / 8;
        if (!inside) continue;
        *reinterpret_cast<uint4*>(piece_at(token, thread % 8)) = *reinterpret_cast<const uint4*>(
            ResidualAt<T>(args, min(row + token, num_rows - 1), column));
      }
      await_warpgroup();
    }
#pragma unroll
    for (int s = 0; s < kTurnTokens / 16; ++s) {
      float* mine = sums + done / 2 + s * 8;
      std::byte* at = piece_at(s * 16 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);
      uint32_t bits[4];
      if (args.residual.data != nullptr) {
        LoadTransposed(bits, at);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = ToFloats(*reinterpret_cast<const Pair*>(&bits[i]));
          mine[2 * i] += pair.x;
          mine[2 * i + 1] += pair.y;
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        *reinterpret_cast<Pair*>(&bits[i]) = FromFloats(T{}, mine[2 * i], mine[2 * i + 1]);
      }
      StoreTransposed(at, bits);
    }
    await_warpgroup();
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int token = i * kStep + thread / 8;
      if (!inside || row + token >= num_rows) continue;
      *reinterpret_cast<uint4*>(OutputAt<T>(args, row + token, column)) =
          *reinterpret_cast<const uint4*>(piece_at(token, thread % 8));
    }
  }
}

#endif  // SPRY_HAS_WARPGROUP_MMA

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    PipelinedKernel(const __grid_constant__ MmaLinearArgs args,
                    const __grid_constant__ PipelinedCounts counts, const StepHeader* header) {
#if SPRY_HAS_WARPGROUP_MMA
  LetNextStart();
  extern __shared__ __align__(128) std::byte shared[];
  __shared__ SharedBarrier barriers[2 * Shape::kStages];
  const PipelinedSpace<Shape> space{
      .stages = shared, .full = barriers, .empty = barriers + Shape::kStages};
  if (threadIdx.x == 0) {
    for (int s = 0; s < Shape::kStages; ++s) {
      space.full[s].Init(Shape::kProducers + 1);  // and who fetches rows
      space.empty[s].Init(Shape::kWarps);
    }
    SharedBarrier::FenceInit();
  }
  // Written by stage, long ago (overlap.cuh). Asked for by each role, since what both know would
  // have to be kept in the few registers that they begin with.
  const auto count_rows = [&] {
    return counts.exact ? NumRows(args.x.rows, *header) : counts.rows;
  };
  __syncthreads();
  if (threadIdx.x < Shape::kConsumers) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Shape::kConsumerRegisters));
    const int32_t num_rows = count_rows();
    const PipelinedCourse<Shape> course(args.outputs, num_rows);
    const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
    AwaitPrevious();
    RingPlace<Shape::kStages> at;
#pragma unroll 1
    for (auto tile = static_cast<int32_t>(blockIdx.x); tile < course.tiles; tile += gridDim.x) {
      float totals[Shape::kSums];
      MultiplyTile<T, Shape>(counts, space, at, totals);
      const int32_t n = course.FirstOutput(tile) + warpgroup * kWarpgroupOutputs;
      if (n >= args.outputs) continue;
      StoreProducts<T, Shape>(args, totals, space.turns() + warpgroup * Shape::kTurnBytes,
                              course.RowTile(tile) * Shape::kTokens, num_rows, n);
    }
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Shape::kProducerRegisters));
    SendTiles<Shape>(args, counts, PipelinedCourse<Shape>(args.outputs, count_rows()), space);
  }
#endif
}

template <typename T, typename Shape>
void LaunchPipelinedShape(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                          const LaunchContext& context) {
  constexpr auto kKernel = PipelinedKernel<T, Shape>;
  const int32_t tiles = args.depth / kTileDepth;
  const InputPlace place{.data = args.packed, .eights = Shape::kEights, .tiles = tiles};
  LaunchRowsTo<T>(place, args, rows, context);
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kBytes);
  const int32_t per_segment = SegmentTiles(args.depth);
  const PipelinedCounts counts{.rows = rows,
                               .exact = rows > kMaxFewRows,
                               .all_tiles = tiles,
                               .segments = tiles / per_segment,
                               .per_segment = per_segment / Shape::kStageTiles};
  const int32_t most = CeilDiv(rows, Shape::kTokens) * CeilDiv(args.outputs, Shape::kOutputs);
  LaunchOverlapped(context,
                   {.blocks = dim3(std::min(most, context.processors)),
                    .threads = Shape::kThreads,
                    .shared_bytes = Shape::kBytes},
                   kKernel, args, counts, state.header);
}

template <typename T, int kTokens>
void LaunchPipelinedOf(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                       const LaunchContext& context) {
  if (SegmentTiles(args.depth) % 3 == 0) {
    return LaunchPipelinedShape<T, PipelinedShape<kTokens, 3>>(args, rows, state, context);
  }
  LaunchPipelinedShape<T, PipelinedShape<kTokens, 2>>(args, rows, state, context);
}

// False: other kernels are faster, or alone.
template <typename T>
bool LaunchPipelined(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                     const LaunchContext& context) {
  switch (PipelinedEights(args.outputs, args.depth, rows, context)) {
    case 8: LaunchPipelinedOf<T, 64>(args, rows, state, context); return true;
    case 16: LaunchPipelinedOf<T, 128>(args, rows, state, context); return true;
    default: return false;
  }
}

}  // namespace spry::cuda
