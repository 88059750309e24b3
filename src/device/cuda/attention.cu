// The attention backend "cuda": 16-bit KV, head sizes 64 and 128.
//
// Here is what a mixed step takes. A block computes up to 16 query rows of one KV head: the heads
// of its group, for several tokens of one request. Positions are taken in tiles of 16; tile i of a
// segment of kKvSegment belongs to warp i mod 8. Each warp keeps a running softmax over its tiles
// (attention_tile.cuh); then warps are joined and segments merged in order (attention_merge.cuh).
// All of that depends on absolute positions only, and rows of a product do not depend on each
// other, so a token's result does not depend on batch or chunk (docs/architecture.md). A decode
// step has kernels of its own that take every sum in the same order (attention_decode.cuh).
//
// Tokens of one prompt need each other's keys, so write_kv is a launch before.
#include "device/cuda/attention_decode.h"
#include "device/cuda/attention_merge.cuh"
#include "device/cuda/attention_plan.h"
#include "device/cuda/attention_tile.cuh"
#include "device/cuda/error.h"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"

namespace spry::cuda {
namespace {

constexpr int kSegmentRounds = kKvSegment / (kTileKeys * kAttentionWarps);

struct AttentionArgs : DecodeArgs {
  bool plans_tiles = false;  // the first attention op of a step
};

constexpr int kStages = 2;  // tiles of a warp on their way

template <typename T, int kDim>
struct Shared {
  KvTile<T, kDim> tiles[kAttentionWarps][kStages];
  MergeSpace<kDim, kTileRows> merge;
};

// The query rows of a block: `heads` heads of each of `num_tokens` tokens of one request.
struct QueryRows {
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t kv_head = 0;
  int32_t first_head = 0;
  int32_t row = -1;      // the request's permanent row; below 0: padding
  int32_t position = 0;  // of the first token
};

template <typename T>
__device__ const T* QueryOf(const AttentionArgs& args, const QueryRows& rows, int row) {
  const int32_t token = row / args.heads;
  if (token >= rows.num_tokens) return nullptr;
  return reinterpret_cast<const T*>(args.q.data) + (rows.first_token + token) * args.q.stride +
         (rows.first_head + row % args.heads) * args.cache.head_dim;
}

template <typename T>
__device__ T* OutputOf(const AttentionArgs& args, const QueryRows& rows, int row) {
  return reinterpret_cast<T*>(args.out.data) +
         (rows.first_token + row / args.heads) * args.out.stride +
         (rows.first_head + row % args.heads) * args.cache.head_dim;
}

// Turn n of a warp is tile (n mod kSegmentRounds) * 8 + warp of segment n / kSegmentRounds.
__device__ int32_t SegmentOf(int turn) { return turn / kSegmentRounds * kKvSegment; }
__device__ int32_t BeginOf(int turn) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  return SegmentOf(turn) + (turn % kSegmentRounds * kAttentionWarps + warp) * kTileKeys;
}

template <typename T, int kDim>
__device__ KvRows<T> KvOf(const AttentionArgs& args, const QueryRows& rows,
                          const StepState& state) {
  const T* keys = args.cache.Key<T>(0, 0, rows.kv_head);
  return {
      .keys = keys,
      .value_distance = args.cache.Value<T>(0, 0, rows.kv_head) - keys,
      .block_elements = args.cache.BlockElements(),
      .block_table = state.block_tables + int64_t{max(rows.row, 0)} * args.cache.max_blocks_per_row,
      .block_shift = args.block_shift};
}

// The outputs of the block's rows, all segments merged.
template <typename T, int kDim>
__device__ void StoreRows(const AttentionArgs& args, const QueryRows& rows,
                          const MergedRows<kDim, kTileRows>& merged) {
#pragma unroll
  for (int m = 0; m < MergedRows<kDim, kTileRows>::kMine; ++m) {
    const int row = MergedRows<kDim, kTileRows>::Row(m);
    if (row >= rows.num_tokens * args.heads) break;
    OutputOf<T>(args, rows, row)[MergedRows<kDim, kTileRows>::Column(m)] =
        FromFloat<T>(merged.output[m] / merged.state[m].sum);
  }
}

__device__ QueryRows RowsOfBlock(const AttentionArgs& args, const StepState& state) {
  const auto y = static_cast<int32_t>(blockIdx.y);
  QueryRows rows{.kv_head = y / args.head_blocks, .first_head = y * args.heads};
  const QueryTile tile = args.scratch.tiles[blockIdx.x];
  if (tile.num_tokens == 0) return rows;
  rows.first_token = tile.first_token;
  rows.num_tokens = tile.num_tokens;
  rows.row = state.token_slots[rows.first_token];
  rows.position = state.positions[rows.first_token];
  return rows;
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    AttentionKernel(const __grid_constant__ AttentionArgs args,
                    const __grid_constant__ StepState state) {
  using Merged = MergedRows<kDim, kTileRows>;
  LetNextStart();
  extern __shared__ __align__(16) std::byte shared[];
  auto& space = *reinterpret_cast<Shared<T, kDim>*>(shared);
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
  AwaitPrevious();  // tiles and keys are of this step
  const QueryRows rows = RowsOfBlock(args, state);
  if (rows.row < 0) {
    for (int i = static_cast<int>(threadIdx.x); i < rows.num_tokens * args.heads * kDim;
         i += kAttentionThreads) {
      OutputOf<T>(args, rows, i / kDim)[i % kDim] = FromFloat<T>(0.0f);
    }
    return;
  }
  const KvRows<T> kv = KvOf<T, kDim>(args, rows, state);
  const int32_t end = rows.position + rows.num_tokens;
  const auto fetch = [&](int turn) {
    const int32_t begin = BeginOf(turn);
    if (begin < end) space.tiles[warp][turn % kStages].Fetch(kv, begin, end);
    asm volatile("cp.async.commit_group;");
  };
#pragma unroll
  for (int turn = 0; turn < kStages; ++turn) fetch(turn);
  TileRows<T, kDim> mine;
  int32_t last[2];  // positions that rows g and g + 8 may see
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    mine.LoadQuery(h, QueryOf<T>(args, rows, g + 8 * h));
    const int32_t token = (g + 8 * h) / args.heads;
    last[h] = token < rows.num_tokens ? rows.position + token : -1;
  }

  Merged merged;
  for (int turn = 0; SegmentOf(turn) < end; turn += kSegmentRounds) {
    mine.Reset();
    for (int i = 0; i < kSegmentRounds; ++i) {
      const int32_t begin = BeginOf(turn + i);
      asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
      __syncwarp();
      if (begin < end) {
        mine.Add(space.tiles[warp][(turn + i) % kStages], begin, last, args.scale);
      }
      __syncwarp();
      fetch(turn + i + kStages);
    }
    space.merge.Put(mine);
    __syncthreads();
    space.merge.Join();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < Merged::kMine; ++m) {
      const int row = Merged::Row(m);
      if (row >= rows.num_tokens * args.heads) break;
      merged.Add(m, space.merge.joined[row], space.merge.Output(row, Merged::Column(m)));
    }
    if (SegmentOf(turn + kSegmentRounds) < end) __syncthreads();  // the space is used again
  }
  StoreRows<T>(args, rows, merged);
}

template <typename T, int kDim>
void LaunchAttention(const void* kept, const StepState& state, const LaunchContext& context) {
  const AttentionArgs& args = ArgsAs<AttentionArgs>(kept);
  const LaunchShape& shape = context.shape;
  if (shape.decode) return LaunchDecode<T>(args, state, context);
  if (args.write_kv.launch != nullptr) args.write_kv.launch(args.write_kv.args, state, context);
  const int32_t tokens = kTileRows / args.heads;
  const int32_t tiles = MostQueryTiles(shape.tokens, shape.rows, tokens);
  if (args.plans_tiles) LaunchPlanTiles(args.scratch.tiles, tiles, tokens, state, context);
  LaunchOverlapped(context,
                   {.blocks = dim3(tiles, args.cache.num_kv_heads * args.head_blocks),
                    .threads = kAttentionThreads,
                    .shared_bytes = sizeof(Shared<T, kDim>)},
                   AttentionKernel<T, kDim>, args, state);
}

template <typename T, int kDim>
Result<LaunchFn> Choose() {
  SPRY_RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(AttentionKernel<T, kDim>,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 sizeof(Shared<T, kDim>)));
  return LaunchFn{LaunchAttention<T, kDim>};
}

Result<BoundLaunch> BindAttention(const OpRecord& op, BindContext& context) {
  AttentionArgs args;
  SPRY_ASSIGN_OR_RETURN(static_cast<AttentionInputs&>(args),
                        BindAttentionInputs(op, context, "cuda"));
  args.heads = HeadsOfBlock(args.group);
  args.head_blocks = args.group / args.heads;
  args.plans_tiles = PlansTiles(context.program(), op);
  args.scratch =
      MapAttentionScratch(context.program(), context.limits(), context.attention_scratch());
  const bool wide = args.cache.head_dim == 128;
  const bool half = args.q.dtype == DType::kF16;
  SPRY_ASSIGN_OR_RETURN(const LaunchFn launch,
                        half ? (wide ? Choose<F16, 128>() : Choose<F16, 64>())
                             : (wide ? Choose<Bf16, 128>() : Choose<Bf16, 64>()));
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace

CudaAttentionBackend CudaAttention() {
  return {.facts = {.name = "cuda",
                    .description = "tensor cores; segments of long rows over several blocks",
                    .activations = {DType::kF16, DType::kBF16},
                    .kvs = {DType::kF16, DType::kBF16},
                    .head_dims = {64, 128},
                    .capturable = true},
          .bytes_per_block = KvBytesPerBlock,
          .bind_write_kv = BindWriteKv,
          .bind_attention = BindAttention,
          .scratch_bytes = AttentionScratchBytes};
}

}  // namespace spry::cuda
