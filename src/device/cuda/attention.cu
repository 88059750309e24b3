// The attention backend "cuda": 16-bit KV, head sizes 64 and 128, decode and prefill alike.
//
// A block computes up to 16 query rows of one KV head: the heads of its group, for one token in a
// decode step, for several of one request in a mixed one. Positions are taken in tiles of 16; tile
// i of a segment of kKvSegment belongs to warp i mod 8. Each warp keeps a running softmax over its
// tiles (attention_tile.cuh); then warps are joined and segments merged in order
// (attention_merge.cuh). All of that depends on absolute positions only, and rows of a product do
// not depend on each other, so a token's result does not depend on batch or chunk
// (docs/architecture.md).
//
// Few rows do not fill the card: in a decode step the segments of a row are then spread over
// several blocks, and the last of these to end merges them. In a decode step a block also writes
// its own token's k and v to the cache, and takes them from where the projection left them. In a
// mixed step tokens of one prompt need each other's keys, so write_kv is a launch before.
#include "device/cuda/attention_inputs.cuh"
#include "device/cuda/attention_merge.cuh"
#include "device/cuda/attention_plan.h"
#include "device/cuda/attention_tile.cuh"
#include "device/cuda/error.h"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"

namespace spry::cuda {
namespace {

constexpr int kSegmentRounds = kKvSegment / (kTileKeys * kAttentionWarps);

struct AttentionArgs : AttentionInputs {
  int32_t heads = 1;         // of a block: a divisor of the group
  int32_t head_blocks = 1;   // of a KV head
  bool plans_tiles = false;  // the first attention op of a step
  AttentionScratch scratch;
};

// kStages: tiles of a warp on their way. With one, three blocks fit into a multiprocessor, which
// beats more tiles of one block where there are enough of them; the tiles' place is then also that
// of the merge.
template <typename T, int kDim, bool kUpper, int kStages>
struct Shared {
  static constexpr int kRows = kUpper ? 16 : 8;
  KvTile<T, kDim> tiles[kAttentionWarps][kStages];
  MergeSpace<kDim, kRows> merge;
};
template <typename T, int kDim, bool kUpper>
struct Shared<T, kDim, kUpper, 1> {
  static constexpr int kRows = kUpper ? 16 : 8;
  union {
    KvTile<T, kDim> tiles[kAttentionWarps][1];
    MergeSpace<kDim, kRows> merge;
  };
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

// What a warp's turns are: turn n is tile (n mod kSegmentRounds) * 8 + warp of the block's
// (n / kSegmentRounds)-th segment.
struct Turns {
  int32_t first_segment = 0;
  int32_t segment_step = 1;

  __device__ int32_t Segment(int turn) const {
    return (first_segment + turn / kSegmentRounds * segment_step) * kKvSegment;
  }
  __device__ int32_t Begin(int turn) const {
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    return Segment(turn) + (turn % kSegmentRounds * kAttentionWarps + warp) * kTileKeys;
  }
};

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

// A decode step's own key and value, from the projection.
template <typename T>
struct OwnKv {
  const T* k = nullptr;  // null: it is in the cache already
  const T* v = nullptr;
};

template <typename T, int kDim>
__device__ OwnKv<T> OwnOf(const AttentionArgs& args, const QueryRows& rows) {
  const int32_t column = rows.kv_head * kDim;
  return {reinterpret_cast<const T*>(args.k.data) + rows.first_token * args.k.stride + column,
          reinterpret_cast<const T*>(args.v.data) + rows.first_token * args.v.stride + column};
}

template <typename T, int kDim>
__device__ void WriteOwn(const KvRows<T>& kv, const OwnKv<T>& own, int32_t position) {
  const int thread = static_cast<int>(threadIdx.x);
  static_assert(2 * kDim <= kAttentionThreads);
  T* key = const_cast<T*>(kv.keys) +
           kv.block_table[position >> kv.block_shift] * kv.block_elements +
           (position & ((1 << kv.block_shift) - 1)) * kDim;
  if (thread < kDim) {
    key[thread] = own.k[thread];
  } else if (thread < 2 * kDim) {
    key[kv.value_distance + thread - kDim] = own.v[thread - kDim];
  }
}

// The outputs of the block's rows, all segments merged.
template <typename T, int kDim, int kRows>
__device__ void StoreRows(const AttentionArgs& args, const QueryRows& rows,
                          const MergedRows<kDim, kRows>& merged) {
#pragma unroll
  for (int m = 0; m < MergedRows<kDim, kRows>::kMine; ++m) {
    const int row = MergedRows<kDim, kRows>::Row(m);
    if (row >= rows.num_tokens * args.heads) break;
    OutputOf<T>(args, rows, row)[MergedRows<kDim, kRows>::Column(m)] =
        FromFloat<T>(merged.output[m] / merged.state[m].sum);
  }
}

// The last block of a row to come here merges all segments.
template <typename T, int kDim, int kRows>
__device__ void MergeParts(const AttentionArgs& args, const QueryRows& rows, int32_t num_segments) {
  using Merged = MergedRows<kDim, kRows>;
  const auto unit = static_cast<int32_t>(blockIdx.x * gridDim.y + blockIdx.y);
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* arrived = &args.scratch.arrived[unit];
    last = atomicAdd(arrived, 1) == min(gridDim.z, num_segments) - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  Merged merged;
#pragma unroll
  for (int m = 0; m < Merged::kMine; ++m) {
    if (Merged::Row(m) >= args.heads) break;
    for (int32_t segment = 0; segment < num_segments; ++segment) {
      const float* part =
          args.scratch.Part(unit, segment, args.heads, kDim) + Merged::Row(m) * (kDim + 2);
      merged.Add(m, {.max = __ldcg(part), .sum = __ldcg(part + 1)},
                 __ldcg(part + 2 + Merged::Column(m)));
    }
  }
  StoreRows<T>(args, rows, merged);
}

// One segment of a row whose segments are spread over blocks.
template <int kDim, int kRows>
__device__ void StorePart(const AttentionArgs& args, int32_t segment, int m,
                          const SoftmaxState& state, float output) {
  const int row = MergedRows<kDim, kRows>::Row(m);
  const int column = MergedRows<kDim, kRows>::Column(m);
  const int32_t unit = static_cast<int32_t>(blockIdx.x * gridDim.y + blockIdx.y);
  float* part = args.scratch.Part(unit, segment, args.heads, kDim) + row * (kDim + 2);
  if (column == 0) {
    __stcg(part, state.max);
    __stcg(part + 1, state.sum);
  }
  __stcg(part + 2 + column, output);
}

__device__ QueryRows RowsOfBlock(const AttentionArgs& args, const StepState& state, bool decode) {
  const auto y = static_cast<int32_t>(blockIdx.y);
  QueryRows rows{.kv_head = y / args.head_blocks};
  rows.first_head = y * args.heads;
  if (decode) {
    rows.first_token = static_cast<int32_t>(blockIdx.x);
    rows.num_tokens = 1;
  } else {
    const QueryTile tile = args.scratch.tiles[blockIdx.x];
    if (tile.num_tokens == 0) return rows;
    rows.first_token = tile.first_token;
    rows.num_tokens = tile.num_tokens;
  }
  rows.row = state.token_slots[rows.first_token];
  rows.position = state.positions[rows.first_token];
  return rows;
}

// kDecode: one token a block, whose k and v may be its own affair; else tiles of tokens.
template <typename T, int kDim, bool kDecode, int kStages>
__global__ void __launch_bounds__(kAttentionThreads, kStages == 1 ? 2 : 1)
    AttentionKernel(const __grid_constant__ AttentionArgs args, bool writes_kv,
                    const __grid_constant__ StepState state) {
  constexpr bool kUpper = !kDecode;
  constexpr bool kShares = kStages == 1;  // tiles and merge
  using Space = Shared<T, kDim, kUpper, kStages>;
  constexpr int kRows = Space::kRows;
  LetNextStart();
  extern __shared__ __align__(16) std::byte shared[];
  Space& space = *reinterpret_cast<Space*>(shared);
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
  if constexpr (!kDecode) AwaitPrevious();  // tiles and keys are of this step
  const QueryRows rows = RowsOfBlock(args, state, kDecode);
  const KvRows<T> kv = KvOf<T, kDim>(args, rows, state);
  const int32_t end = rows.row < 0 ? 0 : rows.position + rows.num_tokens;
  const int32_t num_segments = (end + kKvSegment - 1) / kKvSegment;
  const bool spread = gridDim.z > 1 && num_segments > 1;
  // The own token has no key in the cache yet.
  const int32_t cached_end = writes_kv ? end - 1 : end;
  const Turns turns{.first_segment = static_cast<int32_t>(blockIdx.z),
                    .segment_step = static_cast<int32_t>(gridDim.z)};
  const auto fetch = [&](int turn) {
    const int32_t begin = turns.Begin(turn);
    if (begin < end) space.tiles[warp][turn % kStages].Fetch(kv, begin, cached_end);
    asm volatile("cp.async.commit_group;");
  };
  // In a decode step all but the own token was written by steps before: it can be on its way while
  // the projection ends.
#pragma unroll
  for (int turn = 0; turn < kStages; ++turn) fetch(turn);
  if constexpr (kDecode) AwaitPrevious();
  if (static_cast<int32_t>(blockIdx.z) >= max(num_segments, 1)) return;
  if (rows.row < 0) {
    for (int i = static_cast<int>(threadIdx.x); i < rows.num_tokens * args.heads * kDim;
         i += kAttentionThreads) {
      OutputOf<T>(args, rows, i / kDim)[i % kDim] = FromFloat<T>(0.0f);
    }
    return;
  }
  std::conditional_t<kDecode, FewTileRows<T, kDim>, TileRows<T, kDim>> mine;
  int32_t last[2] = {rows.position, rows.position};  // positions that rows g and g + 8 may see
  if constexpr (kDecode) {
    mine.LoadQuery(QueryOf<T>(args, rows, g));
  } else {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      mine.LoadQuery(h, QueryOf<T>(args, rows, g + 8 * h));
      const int32_t token = (g + 8 * h) / args.heads;
      last[h] = token < rows.num_tokens ? rows.position + token : -1;
    }
  }
  const OwnKv<T> own = writes_kv ? OwnOf<T, kDim>(args, rows) : OwnKv<T>{};
  if (writes_kv && blockIdx.z == 0) WriteOwn<T, kDim>(kv, own, rows.position);

  MergedRows<kDim, kRows> merged;
  for (int turn = 0; turns.Segment(turn) < end; turn += kSegmentRounds) {
    mine.Reset();
    for (int i = 0; i < kSegmentRounds; ++i) {
      const int32_t begin = turns.Begin(turn + i);
      asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
      __syncwarp();
      KvTile<T, kDim>& tile = space.tiles[warp][(turn + i) % kStages];
      if (begin < end) {
        if (writes_kv && rows.position - begin < kTileKeys) {
          tile.Put(rows.position - begin, own.k, own.v);
        }
        if constexpr (kDecode) {
          mine.Add(tile, begin, rows.position, args.scale);
        } else {
          mine.Add(tile, begin, last, args.scale);
        }
      }
      __syncwarp();
      if (!kShares || i + 1 < kSegmentRounds) fetch(turn + i + kStages);
    }
    if constexpr (kShares) __syncthreads();
    space.merge.Put(mine);
    __syncthreads();
    space.merge.Join();
    __syncthreads();
#pragma unroll
    for (int m = 0; m < MergedRows<kDim, kRows>::kMine; ++m) {
      const int row = MergedRows<kDim, kRows>::Row(m);
      if (row >= rows.num_tokens * args.heads) break;
      const SoftmaxState& part = space.merge.joined[row];
      const float output = space.merge.Output(row, MergedRows<kDim, kRows>::Column(m));
      if (spread) {
        StorePart<kDim, kRows>(args, turns.Segment(turn) / kKvSegment, m, part, output);
      } else {
        merged.Add(m, part, output);
      }
    }
    if (turns.Segment(turn + kSegmentRounds) >= end) break;
    __syncthreads();  // the space is used again
    if constexpr (kShares) fetch(turn + kSegmentRounds);
  }
  if (!spread) return StoreRows<T>(args, rows, merged);
  MergeParts<T, kDim, kRows>(args, rows, num_segments);
}

constexpr int kMostStages = 2;

template <typename T, int kDim, bool kDecode, int kStages>
constexpr int kSharedBytes = sizeof(Shared<T, kDim, !kDecode, kStages>);

template <typename T, int kDim, bool kDecode, int kStages>
void LaunchKernel(const AttentionArgs& args, const StepState& state, const LaunchContext& context,
                  int32_t units, int32_t splits) {
  const bool writes_kv = kDecode && args.write_kv.launch != nullptr;
  LaunchOverlapped(context,
                   {.blocks = dim3(units, args.cache.num_kv_heads * args.head_blocks, splits),
                    .threads = kAttentionThreads,
                    .shared_bytes = kSharedBytes<T, kDim, kDecode, kStages>},
                   AttentionKernel<T, kDim, kDecode, kStages>, args, writes_kv, state);
}

template <typename T, int kDim>
void LaunchAttention(const void* kept, const StepState& state, const LaunchContext& context) {
  const AttentionArgs& args = ArgsAs<AttentionArgs>(kept);
  const LaunchShape& shape = context.shape;
  if (shape.decode) {
    const int32_t blocks = shape.tokens * args.cache.num_kv_heads * args.head_blocks;
    const auto launch = blocks > context.processors ? LaunchKernel<T, kDim, true, 1>
                                                    : LaunchKernel<T, kDim, true, kMostStages>;
    return launch(args, state, context, shape.tokens, args.scratch.Splits(blocks));
  }
  if (args.write_kv.launch != nullptr) args.write_kv.launch(args.write_kv.args, state, context);
  const int32_t tokens = kTileRows / args.heads;
  const int32_t tiles = MostQueryTiles(shape.tokens, shape.rows, tokens);
  if (args.plans_tiles) LaunchPlanTiles(args.scratch.tiles, tiles, tokens, state, context);
  LaunchKernel<T, kDim, false, kMostStages>(args, state, context, tiles, /*splits=*/1);
}

template <typename T, int kDim, bool kDecode, int kStages>
cudaError_t AllowSharedBytes() {
  return cudaFuncSetAttribute(AttentionKernel<T, kDim, kDecode, kStages>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kSharedBytes<T, kDim, kDecode, kStages>);
}

template <typename T, int kDim>
Result<LaunchFn> Choose() {
  SPRY_RETURN_IF_CUDA_ERROR((AllowSharedBytes<T, kDim, true, 1>()));
  SPRY_RETURN_IF_CUDA_ERROR((AllowSharedBytes<T, kDim, true, kMostStages>()));
  SPRY_RETURN_IF_CUDA_ERROR((AllowSharedBytes<T, kDim, false, kMostStages>()));
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
