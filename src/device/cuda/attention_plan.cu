#include "device/cuda/attention_plan.h"

#include <optional>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/memory_plan.h"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 1024;

// Sums of `count` over the threads before this one, and over all.
__device__ int32_t SumBefore(int32_t count, int32_t& all) {
  __shared__ int32_t warps[kThreads / kWarpThreads];
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  int32_t sum = count;
  for (int step = 1; step < kWarpThreads; step *= 2) {
    const int32_t other = __shfl_up_sync(0xffffffffu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == kWarpThreads - 1) warps[warp] = sum;
  __syncthreads();
  int32_t before = 0;
  all = 0;
  for (int w = 0; w < kThreads / kWarpThreads; ++w) {
    if (w < warp) before += warps[w];
    all += warps[w];
  }
  __syncthreads();  // warps is used again
  return before + sum - count;
}

__global__ void __launch_bounds__(kThreads)
    PlanTilesKernel(QueryTile* tiles, int32_t most_tiles, TileSizes sizes, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t num_rows = state.header->num_rows;
  int32_t planned = 0;
  for (int32_t first = 0; first < num_rows; first += kThreads) {
    const int32_t r = first + thread;
    const StagedRow row = r < num_rows ? state.rows[r] : StagedRow{};
    const int32_t per_tile = sizes.Of(row.num_tokens);
    const int32_t count = (row.num_tokens + per_tile - 1) / per_tile;
    int32_t all = 0;
    const int32_t before = SumBefore(count, all);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t first = i * per_tile;
      tiles[planned + before + count - 1 - i] = {
          .first_token = row.query_start + first,
          .num_tokens = min(per_tile, row.num_tokens - first),
          .row = row.live ? row.row : -1,
          .position = row.start + first};
    }
    planned += all;
  }
  for (int32_t i = planned + thread; i < most_tiles; i += kThreads) tiles[i] = {};
}

template <typename Fn>
void ForAttentions(const Program& program, const Fn& fn) {
  for (const OpRecord& op : program.ops) {
    if (op.id == OpId::kAttention) fn(op.params.As<AttentionParams>());
  }
}

int32_t GroupOf(const AttentionParams& params) { return params.num_heads / params.num_kv_heads; }

struct ScratchSizes {
  int64_t tiles = 0;
  int64_t arrived = 0;
  int64_t parts = 0;
  int32_t max_segments = 1;
};

ScratchSizes SizesOf(const Program& program, const StepLimits& limits) {
  ScratchSizes sizes;
  const int64_t positions = int64_t{limits.max_blocks_per_row} * limits.block_size;
  sizes.max_segments =
      static_cast<int32_t>(std::max<int64_t>(1, (positions + kKvSegment - 1) / kKvSegment));
  int64_t part_floats = 0;
  ForAttentions(program, [&](const AttentionParams& params) {
    const int32_t heads = HeadsOfBlock(GroupOf(params));
    part_floats = std::max<int64_t>(part_floats, heads * (params.head_dim + 2));
  });
  sizes.tiles = AlignDevice(int64_t{limits.max_tokens} * sizeof(QueryTile));
  sizes.arrived = AlignDevice(AttentionScratch::kBlocks * sizeof(uint32_t));
  // Where units are more than half of the blocks nothing is spread.
  constexpr int64_t kSpreadUnits = AttentionScratch::kBlocks / 2;
  sizes.parts = AlignDevice(kSpreadUnits * sizes.max_segments * part_floats * sizeof(float));
  return sizes;
}

}  // namespace

int32_t HeadsOfBlock(int32_t group) {
  constexpr int32_t kMost = 8;
  for (int32_t heads = std::min(group, kMost); heads > 1; --heads) {
    if (group % heads == 0) return heads;
  }
  return 1;
}

bool PlansTiles(const Program& program, const OpRecord& attention) {
  const AttentionParams& params = attention.params.As<AttentionParams>();
  std::optional<AttentionParams> first;
  bool uniform = true;
  ForAttentions(program, [&](const AttentionParams& other) {
    if (!first) first = other;
    uniform &= other.num_heads == first->num_heads && other.num_kv_heads == first->num_kv_heads;
  });
  return first->layer == params.layer || !uniform;
}

int32_t TileSizes::MostTiles(int32_t tokens, int32_t rows) const {
  const int32_t most_few = std::max(1, (few_tokens + few_per_tile - 1) / few_per_tile);
  return std::min(tokens, tokens / per_tile + rows * most_few);
}

void LaunchPlanTiles(QueryTile* tiles, int32_t most_tiles, const TileSizes& sizes,
                     const StepState& state, const LaunchContext& context) {
  LaunchOverlapped(context, {.blocks = dim3(1), .threads = kThreads}, PlanTilesKernel, tiles,
                   most_tiles, sizes, state);
}

int64_t AttentionScratchBytes(const Program& program, const StepLimits& limits) {
  const ScratchSizes sizes = SizesOf(program, limits);
  return sizes.tiles + sizes.arrived + sizes.parts;
}

AttentionScratch MapAttentionScratch(const Program& program, const StepLimits& limits,
                                     std::byte* base) {
  const ScratchSizes sizes = SizesOf(program, limits);
  return {.tiles = reinterpret_cast<QueryTile*>(base),
          .arrived = reinterpret_cast<uint32_t*>(base + sizes.tiles),
          .parts = reinterpret_cast<float*>(base + sizes.tiles + sizes.arrived),
          .max_segments = sizes.max_segments};
}

}  // namespace spry::cuda
