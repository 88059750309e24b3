// The attention backend "cuda": 16-bit KV, head sizes 64 and 128.
//
// Here is what a mixed step takes. A block computes the heads of a group of one KV head for some
// tokens of one request: up to 64 query rows, of which each warp has 16 (attention_rows.cuh) and
// all share the keys and values that come through a ring in shared memory, a strand at a time. A
// block of 8 rows or fewer computes them like a unit of a decode step (attention_decode_unit.cuh),
// its warps sharing the strands. All sums are taken in one order, that of attention_merge.cuh: it
// depends on absolute positions only, and rows of a product do not depend on each other, so a
// token's result does not depend on batch or chunk (docs/architecture.md).
//
// Tokens of one prompt need each other's keys, so write_kv is a launch before.
#include "device/cuda/attention_decode.h"
#include "device/cuda/attention_decode_unit.cuh"
#include "device/cuda/attention_plan.h"
#include "device/cuda/attention_rows.cuh"
#include "device/cuda/error.h"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"

namespace spry::cuda {
namespace {

struct AttentionArgs : DecodeArgs {
  bool plans_tiles = false;  // the first attention op of a step
};

constexpr int kBlockWarps = 4;
constexpr int kBlockThreads = kBlockWarps * kWarpThreads;
constexpr int kBlockRows = kBlockWarps * kWarpRows;
constexpr int kFewRows = 8;  // that are computed like a unit of a decode step
// Up to so many rows of a request are cut into blocks of kFewRows: as rows of one block they would
// leave most of its warps idle, and the card.
constexpr int kMostFewRows = 4 * kFewRows;
constexpr int kStages = 2;  // strands in the ring

static_assert(kBlockWarps == kStrandTiles);  // a tile of a strand for each to fetch

template <int kDim>
using FewShape = UnitShape<kDim, kFewRows, kBlockWarps>;

template <typename T, int kDim>
struct ManyRowsSpace {
  StrandTiles<T, kDim> ring[kStages];
  RowTotals<kDim, kBlockThreads> totals;
};
template <typename T, int kDim>
struct FewRowsSpace {
  StrandSpace<kDim, kFewRows> strands;
  UnitHeads<T, kDim, kFewRows> heads;
  OwnKv<T> last;
};
template <typename T, int kDim>
union Shared {
  ManyRowsSpace<T, kDim> many;
  FewRowsSpace<T, kDim> few;
};

// The query rows of a block: `heads` heads of each of a tile's tokens.
struct QueryRows {
  QueryTile tile;
  int32_t kv_head = 0;
  int32_t first_head = 0;
};

template <typename T>
__device__ const T* QueryOf(const AttentionArgs& args, const QueryRows& rows, int row) {
  return reinterpret_cast<const T*>(args.q.data) +
         (rows.tile.first_token + row / args.heads) * args.q.stride +
         (rows.first_head + row % args.heads) * args.cache.head_dim;
}

template <typename T>
__device__ T* OutputOf(const AttentionArgs& args, const QueryRows& rows, int row) {
  return reinterpret_cast<T*>(args.out.data) +
         (rows.tile.first_token + row / args.heads) * args.out.stride +
         (rows.first_head + row % args.heads) * args.cache.head_dim;
}

__device__ QueryRows RowsOfBlock(const AttentionArgs& args) {
  const auto x = static_cast<int32_t>(blockIdx.x);
  return {.tile = args.scratch.tiles[blockIdx.y],
          .kv_head = x / args.head_blocks,
          .first_head = x * args.heads};
}

template <typename T>
__device__ KvRows<T> KvOf(const AttentionArgs& args, const QueryRows& rows,
                          const StepState& state) {
  const T* keys = args.cache.Key<T>(0, 0, rows.kv_head);
  return {
      .keys = keys,
      .value_distance = args.cache.Value<T>(0, 0, rows.kv_head) - keys,
      .block_elements = args.cache.BlockElements(),
      .block_table = state.block_tables + int64_t{rows.tile.row} * args.cache.max_blocks_per_row,
      .block_shift = args.block_shift};
}

template <typename T, int kDim>
__device__ void AttendFew(const AttentionArgs& args, const QueryRows& rows, const KvRows<T>& kv,
                          FewRowsSpace<T, kDim>& space) {
  using Shape = FewShape<kDim>;
  const int num_rows = rows.tile.num_tokens * args.heads;
  WarpStrands<T, Shape> strands{
      .rows = {kv.keys, kv.value_distance, kv.block_table},
      .steps = {static_cast<uint32_t>(kv.block_elements / 8),
                static_cast<uint32_t>(kv.block_shift)},
      .walk = {.end = static_cast<uint32_t>(rows.tile.End()), .segment_step = kKvSegment}};
  strands.Start(0);
  const T* last = kv.keys + kv.BlockOf(rows.tile.End() - 1) * kv.block_elements +
                  ((rows.tile.End() - 1) & ((1 << kv.block_shift) - 1)) * kDim;
  space.last = {last, last + kv.value_distance};
  space.heads.template Fetch<Shape>(num_rows, [&](int row) { return QueryOf<T>(args, rows, row); });
  Shape::Sync();
  UnitWork<T, Shape> work{
      .query = Query<T, kDim>(space.heads.queries[min(LaneRows<T, kDim>::Group(), num_rows - 1)]),
      .own = &space.last,
      .num_rows = num_rows,
      .shortest = static_cast<uint32_t>(rows.tile.position + 1),
      .scale = args.scale_log2,
      .first_segment = 0,
      .segment_step = 1};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = min(2 * LaneRows<T, kDim>::Quad() + i, num_rows - 1);
    work.ends[i] = rows.tile.position + row / args.heads + 1;
  }
  RunUnit<T, Shape>(
      strands, work, /*spread=*/false, space.strands,
      [](int32_t, int, int, const SoftmaxPart&, const float4&) {},
      [&](int row, int d, const float4& outputs) {
        T* out = OutputOf<T>(args, rows, row) + d;
        out[0] = FromFloat<T>(outputs.x);
        out[8] = FromFloat<T>(outputs.y);
        out[16] = FromFloat<T>(outputs.z);
        out[24] = FromFloat<T>(outputs.w);
      });
}

// Turn i of a block is strand i mod kStrands of segment i / kStrands.
__device__ int32_t BeginOf(int turn) {
  return turn / kStrands * kKvSegment + turn % kStrands * kTileKeys;
}

// Strands on their way to the ring. Each warp fetches one of their tiles.
template <typename T, int kDim>
struct RingFetch {
  KvRows<T> kv;
  int32_t end;
  int turn = 0;
  int32_t low_block;  // of the halves of the next tile
  int32_t high_block;

  __device__ RingFetch(const KvRows<T>& kv, int32_t end) : kv(kv), end(end) { Find(); }

  __device__ static int Warp() { return static_cast<int>(threadIdx.x) / kWarpThreads; }
  __device__ int32_t Begin() const { return BeginOf(turn) + Warp() * kStrandStep; }
  __device__ void Find() {
    low_block = kv.BlockOf(min(Begin(), end - 1));
    high_block = kv.BlockOf(min(Begin() + kTileKeys / 2, end - 1));
  }
  __device__ void Next(StrandTiles<T, kDim> (&ring)[kStages]) {
    if (Begin() < end) {
      KvTile<T, kDim>& tile = ring[turn % kStages].tiles[Warp()];
      tile.FetchHalf(0, kv, low_block, Begin(), end);
      tile.FetchHalf(1, kv, high_block, Begin() + kTileKeys / 2, end);
    }
    asm volatile("cp.async.commit_group;");
    ++turn;
    Find();
  }
};

template <typename T, int kDim>
__device__ void AttendRows(const AttentionArgs& args, const QueryRows& rows, const KvRows<T>& kv,
                           ManyRowsSpace<T, kDim>& space) {
  StrandTiles<T, kDim>(&ring)[kStages] = space.ring;
  const int32_t end = rows.tile.End();
  RingFetch<T, kDim> fetch(kv, end);
#pragma unroll
  for (int i = 0; i < kStages - 1; ++i) fetch.Next(ring);
  const int num_rows = rows.tile.num_tokens * args.heads;
  const int first_row = static_cast<int>(threadIdx.x) / kWarpThreads * kWarpRows;
  WarpRows<T, kDim> mine;
  mine.shortest = rows.tile.position + first_row / args.heads + 1;
  const int last_row = min(first_row + kWarpRows, num_rows) - 1;
  mine.longest = first_row < num_rows ? rows.tile.position + last_row / args.heads + 1 : 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + WarpRows<T, kDim>::Group() + 8 * h;
    mine.LoadQuery(h, row < num_rows ? QueryOf<T>(args, rows, row) : nullptr);
    mine.ends[h] = row < num_rows ? rows.tile.position + row / args.heads + 1 : 0;
  }
  const int last_segment = (end - 1) / kKvSegment;
  const int last_strands = (end - last_segment * kKvSegment + kTileKeys - 1) / kTileKeys;
  const int turns = last_segment * kStrands + min(kStrands, last_strands);
#pragma unroll 1
  for (int turn = 0; turn < turns; ++turn) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();  // this turn's strand is here, the place of the one before is free
    fetch.Next(ring);
    if (turn % kStrands == 0) mine.StartSegment();
    mine.AddStrand(ring[turn % kStages], BeginOf(turn), args.scale_log2);
    const bool is_last = turn == turns - 1;
    if (turn % kStrands == kStrands - 1 || is_last) {
      mine.EndSegment(turn < kStrands, is_last, space.totals);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row + WarpRows<T, kDim>::Group() + 8 * h;
    if (row >= num_rows) continue;
    const float share = 1.0f / mine.total_part[h].sum;
    T* out = OutputOf<T>(args, rows, row) + 2 * WarpRows<T, kDim>::Quad();
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      using Pair = typename PairOf<T>::Type;
      *reinterpret_cast<Pair*>(out + n * 8) =
          FromFloats(T{}, mine.segment[n][2 * h] * share, mine.segment[n][2 * h + 1] * share);
    }
  }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kBlockThreads, kDim == 64 ? 3 : 2)
    AttentionKernel(const __grid_constant__ AttentionArgs args,
                    const __grid_constant__ StepState state) {
  LetNextStart();
  extern __shared__ __align__(16) std::byte shared[];
  auto& space = *reinterpret_cast<Shared<T, kDim>*>(shared);
  AwaitPrevious();  // tiles and keys are of this step
  const QueryRows rows = RowsOfBlock(args);
  const int num_rows = rows.tile.num_tokens * args.heads;
  if (rows.tile.row < 0) {
    for (int i = static_cast<int>(threadIdx.x); i < num_rows * kDim; i += kBlockThreads) {
      OutputOf<T>(args, rows, i / kDim)[i % kDim] = FromFloat<T>(0.0f);
    }
    return;
  }
  const KvRows<T> kv = KvOf<T>(args, rows, state);
  if (num_rows <= kFewRows) {
    AttendFew<T, kDim>(args, rows, kv, space.few);
  } else {
    AttendRows<T, kDim>(args, rows, kv, space.many);
  }
}

template <typename T, int kDim>
void LaunchAttention(const void* kept, const StepState& state, const LaunchContext& context) {
  const AttentionArgs& args = ArgsAs<AttentionArgs>(kept);
  const LaunchShape& shape = context.shape;
  if (!shape.decode || args.rope_table == nullptr) LaunchFolded(args.rope, state, context);
  if (shape.decode) return LaunchDecode<T>(args, state, context);
  LaunchFolded(args.write_kv, state, context);
  TileSizes sizes{.per_tile = kBlockRows / args.heads, .few_per_tile = kFewRows / args.heads};
  const int32_t head_blocks = args.cache.num_kv_heads * args.head_blocks;
  // Only where a step is so small: many blocks keep the card busy however few of their rows work.
  const bool is_small = shape.tokens / sizes.few_per_tile * head_blocks <= 4 * context.processors;
  sizes.few_tokens = (is_small ? kMostFewRows : kFewRows) / args.heads;
  const int32_t tiles = sizes.MostTiles(shape.tokens, shape.rows);
  if (args.plans_tiles) LaunchPlanTiles(args.scratch.tiles, tiles, sizes, state, context);
  LaunchOverlapped(context,
                   {.blocks = dim3(head_blocks, tiles),
                    .threads = kBlockThreads,
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
  if (!(args.scale > 0.0f)) {  // the largest product is taken for the largest score
    return Unimplemented("attention backend cuda: scale must be above 0; use cuda-reference");
  }
  args.scale_log2 = args.scale * kLog2E;
  args.heads = HeadsOfBlock(args.group);
  args.head_blocks = args.group / args.heads;
  args.plans_tiles = PlansTiles(context.program(), op);
  const RopeParams rope = op.params.As<AttentionParams>().rope;
  if (rope.rotary_dim == args.cache.head_dim && !rope.interleaved) {
    args.rope_table = context.Floats(op.weights[op.weights.size() - 1]);
  }
  args.taker = TakeRows(op, HandOver::kInDecode, context);
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
