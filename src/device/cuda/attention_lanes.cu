// The attention backend "cuda-lanes": 16-bit KV and heads of 64, without tensor cores. It needs
// little shared memory, so its blocks start beside those of the projection before them and have
// their keys when it ends: a decode step over a few hundred tokens costs less than with "cuda"
// (attention.cu), a long prompt much more.
//
// A unit is all query heads of one KV head for one token, so K and V are read once for the group.
// Positions are taken in tiles of 16; tile i of a segment of kKvSegment belongs to strand i mod
// kStrands. Within a tile a few lanes share a key, and the same lanes take the same key's value, so
// a score never leaves its lanes; a strand is a running softmax over its tiles, the strands' states
// become one by their common maximum, then segments are merged in order. All of that depends on
// absolute positions only, so a token's result does not depend on batch or chunk
// (docs/architecture.md). Neither does it depend on how many warps share a unit's strands: all
// kStrands where units are few, one where there are enough units to fill the card.
//
// In a decode step a unit also writes its own token's k and v to the cache, and takes them from
// where the projection left them: one launch. In a mixed step tokens of one prompt need each
// other's keys, so write_kv is a launch before.
#include <algorithm>

#include "device/cuda/attention_inputs.cuh"
#include "device/cuda/attention_tile.cuh"
#include "device/cuda/attention_units.cuh"
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"
#include "ops/attention/softmax_state.h"
#include "ops/math.h"

namespace spry::cuda {
namespace {

constexpr int kTile = 16;  // positions
constexpr int kDim = 64;
constexpr int kLanesPerKey = kDim / 8;
constexpr int kKeysPerLoad = kWarpThreads / kLanesPerKey;
constexpr int kLoads = kTile / kKeysPerLoad;
static_assert(kLanesPerKey == 8 && kLoads == 4);  // AddKeys and Put go by the bits of a lane

// How a kernel shares out units: kWarps warps each; a block has at least 4 warps.
template <int kWarps_, int kGroup_>
struct UnitShape : Units<kWarps_, std::max(kWarps_, 4)> {
  static constexpr int kGroup = kGroup_;
  // Warps of a multiprocessor. More than so many leave registers for less than a tile.
  static constexpr int kPerProcessor = kWarps_ == kStrands ? 16 : kWarps_ == 1 ? 24 : 20;
  static constexpr int kMinBlocks = kGroup > 1 ? 1 : kPerProcessor / UnitShape::kBlockWarps;
};

__device__ inline int Lane() { return static_cast<int>(threadIdx.x) % kWarpThreads; }

// 8 neighbouring 16-bit elements.
template <typename T>
__device__ void Widen(const uint4& bits, float (&out)[8]) {
  const auto* pairs = reinterpret_cast<const typename PairOf<T>::Type*>(&bits);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v = ToFloats(pairs[i]);
    out[2 * i] = v.x;
    out[2 * i + 1] = v.y;
  }
}

// Where the keys and values of one request and KV head lie.
template <typename T>
struct LaneKv {
  T* keys;  // of block 0
  int32_t value_distance;
  int32_t block_elements;
  const int32_t* block_table;
  int32_t block_shift;

  __device__ T* KeyAt(int32_t position) const {
    return KeyIn(block_table[position >> block_shift], position);
  }
  __device__ T* KeyIn(int32_t block, int32_t position) const {
    return keys + int64_t{block} * block_elements + (position & ((1 << block_shift) - 1)) * kDim;
  }
};

// The key and value that a decode step makes itself.
template <typename T>
struct OwnKv {
  const T* k = nullptr;  // null: they are in the cache already
  const T* v = nullptr;
  int32_t position = 0;

  // By one warp, to the cache.
  __device__ void Write(const LaneKv<T>& kv) const {
    if (Lane() >= 2 * kLanesPerKey) return;
    const int32_t element = Lane() % kLanesPerKey * 8;
    const bool is_value = Lane() >= kLanesPerKey;
    T* to = kv.KeyAt(position) + element + (is_value ? kv.value_distance : 0);
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>((is_value ? v : k) + element);
  }
};

// Positions [begin, min(begin + kTile, end)). A lane has part of begin + Lane() / kLanesPerKey and
// of every kKeysPerLoad-th after it; beyond the end it has the last again.
struct TileAt {
  int32_t begin = 0;
  int32_t end = 0;

  __device__ int32_t PositionOf(int load) const {
    return min(begin + Lane() / kLanesPerKey + load * kKeysPerLoad, end - 1);
  }
};

// The tiles of a segment that are one warp's: strand after strand.
template <typename Shape>
struct StrandWalk {
  int32_t segment = 0;
  int strand = 0;
  TileAt at;

  __device__ static StrandWalk Of(int32_t segment, int32_t end) {
    const int strand = Shape::Warp();
    return {segment, strand, {segment + strand * kTile, end}};
  }
  __device__ bool inside() const { return strand < kStrands && at.begin < at.end; }
  __device__ StrandWalk Next() const {
    StrandWalk next = *this;
    next.at.begin += kStrands * kTile;
    if (next.at.begin < at.end) return next;
    next.strand += Shape::kWarps;
    next.at.begin = segment + next.strand * kTile;
    return next;
  }
};

// The blocks of a warp's first tile, asked for together with the token's row and position, not
// after them: where rows are in order, token t is of row t.
struct FirstBlocks {
  const int32_t* guessed = nullptr;
  int32_t indices[2];
  int32_t blocks[2];

  __device__ FirstBlocks(const int32_t* table, int32_t begin, int32_t shift, int32_t count)
      : guessed(table) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      indices[half] = min((begin + half * 8) >> shift, count - 1);
      blocks[half] = table[indices[half]];
    }
  }
  template <typename T>
  __device__ T* KeyAt(const LaneKv<T>& kv, int half, int32_t position) const {
    if (kv.block_table != guessed || position >> kv.block_shift != indices[half]) {
      return kv.KeyAt(position);
    }
    return kv.KeyIn(blocks[half], position);
  }
};

struct LaneTile {
  uint4 keys[kLoads];
  uint4 values[kLoads];

  // From the cache, where the own token's place holds nothing yet.
  template <typename T>
  __device__ void FetchKeys(const LaneKv<T>& kv, const TileAt& at) {
    Fetch(kv, at, 0, keys);
  }
  template <typename T>
  __device__ void FetchValues(const LaneKv<T>& kv, const TileAt& at) {
    Fetch(kv, at, kv.value_distance, values);
  }
  template <typename T, typename Walk>
  __device__ void Fetch(const LaneKv<T>& kv, const Walk& walk) {
    if (!walk.inside()) return;
    FetchKeys(kv, walk.at);
    FetchValues(kv, walk.at);
  }
  template <typename T, typename Walk>
  __device__ void FetchFirst(const LaneKv<T>& kv, const Walk& walk, const FirstBlocks& first) {
    if (!walk.inside()) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t some = min(walk.at.begin + half * 8, walk.at.end - 1);
      const T* row = first.KeyAt(kv, half, some);
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        const int32_t from = (walk.at.PositionOf(i) - some) * kDim;
        keys[i] = Load8(row + from);
        values[i] = Load8(row + kv.value_distance + from);
      }
    }
  }
  // What a decode step makes itself.
  template <typename T>
  __device__ void FetchOwn(const OwnKv<T>& own, const TileAt& at) {
    if (own.k == nullptr || own.position - at.begin >= kTile) return;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (at.PositionOf(i) != own.position) continue;
      keys[i] = Load8(own.k);
      values[i] = Load8(own.v);
    }
  }

 private:
  // Eight neighbouring positions from a multiple of eight on are in one block.
  template <typename T>
  __device__ static void Fetch(const LaneKv<T>& kv, const TileAt& at, int32_t distance,
                               uint4 (&to)[kLoads]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t some = min(at.begin + half * 8, at.end - 1);
      const T* row = kv.KeyAt(some) + distance;
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        to[i] = Load8(row + (at.PositionOf(i) - some) * kDim);
      }
    }
  }
  template <typename T>
  __device__ static uint4 Load8(const T* row) {
    return *reinterpret_cast<const uint4*>(row + Lane() % kLanesPerKey * 8);
  }
};

// What a warp knows of a softmax over a strand's tiles, for kGroup heads. A lane holds 8 elements
// of each output, summed over the keys that were its own.
template <int kGroup>
struct StrandState {
  SoftmaxState softmax[kGroup];
  float output[kGroup][8];

  __device__ void Reset() {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      softmax[h] = {};
#pragma unroll
      for (int e = 0; e < 8; ++e) output[h][e] = 0.0f;
    }
  }
};

// The halves of a lane's values go to the lane that differs in `bit`, which keeps the other half;
// what both have of the half that a lane keeps is added.
template <int kCount>
__device__ void AddHalves(const float (&values)[kCount], int bit, float (&half)[kCount / 2]) {
  const bool upper = (Lane() & bit) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float other = upper ? values[i] : values[i + kCount / 2];
    const float mine = upper ? values[i + kCount / 2] : values[i];
    half[i] = mine + __shfl_xor_sync(0xffffffffu, other, bit);
  }
}

// Adds the keys of a tile to the softmaxes. weights: of one of the lane's four keys (load Lane() %
// 8 / 2), which two lanes have in common.
template <typename T, int kGroup>
__device__ void AddKeys(const LaneTile& tile, const TileAt& at, const float (&q)[kGroup][8],
                        float scale, StrandState<kGroup>& state, float (&weights)[kGroup]) {
  const int32_t mine = Lane() / kLanesPerKey + Lane() % kLanesPerKey / 2 * kKeysPerLoad;
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    float products[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      float k[8];
      Widen<T>(tile.keys[i], k);
      products[i] = 0.0f;
#pragma unroll
      for (int e = 0; e < 8; ++e) products[i] = fmaf(q[h][e], k[e], products[i]);
    }
    float two[2];
    AddHalves(products, 4, two);
    float one[1];
    AddHalves(two, 2, one);
    const float product = one[0] + __shfl_xor_sync(0xffffffffu, one[0], 1);
    const float score = at.begin + mine < at.end ? product * scale : -INFINITY;
    SoftmaxState& softmax = state.softmax[h];
    float max = fmaxf(softmax.max, score);
#pragma unroll
    for (int step = 2; step < kWarpThreads; step *= 2) {
      max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
    }
    if (softmax.max != -INFINITY) {
      const float keep = FastExp(softmax.max - max);
      softmax.sum *= keep;
#pragma unroll
      for (int e = 0; e < 8; ++e) state.output[h][e] *= keep;
    }
    softmax.max = max;
    weights[h] = FastExp(score - max);
  }
}

// Sums are of this lane's keys; the lanes are summed once, at the end of the strand.
template <typename T, int kGroup>
__device__ void AddValues(const LaneTile& tile, const float (&weights)[kGroup],
                          StrandState<kGroup>& state) {
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const float weight =
          __shfl_sync(0xffffffffu, weights[h], Lane() / kLanesPerKey * kLanesPerKey + 2 * i);
      state.softmax[h].sum += weight;
      float v[8];
      Widen<T>(tile.values[i], v);
#pragma unroll
      for (int e = 0; e < 8; ++e) state.output[h][e] = fmaf(weight, v[e], state.output[h][e]);
    }
  }
}

// The states of a unit's strands, for merging.
template <int kGroup>
struct MergeSpace {
  float max[kGroup][kStrands];
  float sum[kGroup][kStrands];
  __align__(16) float output[kStrands][kGroup][kDim];

  // Sums the lanes.
  __device__ void Put(int strand, const StrandState<kGroup>& state) {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      float total = state.softmax[h].sum;
#pragma unroll
      for (int step = kLanesPerKey; step < kWarpThreads; step *= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, step);
      }
      float four[4];
      AddHalves(state.output[h], 8, four);
      float two[2];
      AddHalves(four, 16, two);
      const int element = Lane() % kLanesPerKey * 8 + (Lane() & 8) / 2 + (Lane() & 16) / 8;
      *reinterpret_cast<float2*>(&output[strand][h][element]) = make_float2(two[0], two[1]);
      if (Lane() == 0) {
        max[h][strand] = state.softmax[h].max;
        sum[h][strand] = total;
      }
    }
  }

  // The segment's state of head h and its output[d]: a sum over `used` strands in ascending order.
  // By whole warps, which have one h.
  __device__ SoftmaxState Merged(int h, int d, int used, float& merged_output) const {
    const int own = Lane() % kStrands;
    const float own_max = own < used ? max[h][own] : -INFINITY;
    SoftmaxState state{.max = own_max};
#pragma unroll
    for (int step = 1; step < kStrands; step *= 2) {
      state.max = fmaxf(state.max, __shfl_xor_sync(0xffffffffu, state.max, step));
    }
    const float own_factor = Exp(own_max - state.max);
    merged_output = 0.0f;
#pragma unroll
    for (int s = 0; s < kStrands; ++s) {
      if (s >= used) break;
      const float factor = __shfl_sync(0xffffffffu, own_factor, s);
      state.sum = fmaf(sum[h][s], factor, state.sum);
      merged_output = fmaf(output[s][h][d], factor, merged_output);
    }
    return state;
  }
};

// The strands of one segment that are this warp's; the first tile is on its way. The place of a
// tile's keys, and of its values, is filled again as soon as they are used.
template <typename T, typename Shape>
__device__ void AddStrands(const LaneKv<T>& kv, const OwnKv<T>& own, StrandWalk<Shape> walk,
                           const float (&q)[Shape::kGroup][8], float scale, LaneTile& tile,
                           MergeSpace<Shape::kGroup>& space) {
  StrandState<Shape::kGroup> state;
  state.Reset();
#pragma unroll 1
  while (walk.inside()) {
    tile.FetchOwn(own, walk.at);
    const StrandWalk<Shape> next = walk.Next();
    float weights[Shape::kGroup];
    AddKeys<T>(tile, walk.at, q, scale, state, weights);
    if (next.inside()) tile.FetchKeys(kv, next.at);
    AddValues<T>(tile, weights, state);
    if (next.inside()) tile.FetchValues(kv, next.at);
    if (next.strand != walk.strand) {
      space.Put(walk.strand, state);
      state.Reset();
    }
    walk = next;
  }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kBlockThreads, Shape::kMinBlocks)
    AttentionKernel(const __grid_constant__ AttentionInputs args, bool writes_kv, int32_t num_rows,
                    const __grid_constant__ StepState state) {
  constexpr int kGroup = Shape::kGroup;
  LetNextStart();
  const int32_t t = static_cast<int32_t>(blockIdx.x);
  const int32_t kv_head = static_cast<int32_t>(blockIdx.y) * Shape::kUnits + Shape::Unit();
  if (kv_head >= args.cache.num_kv_heads) return;
  const int32_t first_head = kv_head * args.group + static_cast<int32_t>(blockIdx.z) * kGroup;
  T* out = reinterpret_cast<T*>(args.out.data) + t * args.out.stride + first_head * kDim;
  const FirstBlocks first(
      state.block_tables + int64_t{min(t, num_rows - 1)} * args.cache.max_blocks_per_row,
      Shape::Warp() * kTile, args.block_shift, args.cache.max_blocks_per_row);
  const int32_t row = state.token_slots[t];
  const int32_t position = state.positions[t];
  T* keys = args.cache.Key<T>(0, 0, kv_head);
  const LaneKv<T> kv{
      .keys = keys,
      .value_distance = static_cast<int32_t>(args.cache.Value<T>(0, 0, kv_head) - keys),
      .block_elements = static_cast<int32_t>(args.cache.BlockElements()),
      .block_table = state.block_tables + int64_t{max(row, 0)} * args.cache.max_blocks_per_row,
      .block_shift = args.block_shift};
  LaneTile tile;
  // In a decode step all but the own token was written by steps before: it can be on its way while
  // the projection ends.
  const bool ahead = writes_kv && row >= 0;
  if (ahead) {
    tile.FetchFirst(kv, StrandWalk<Shape>::Of(0, min(position + 1, kKvSegment)), first);
  }
  AwaitPrevious();
  if (row < 0) {
    for (int i = Shape::Thread(); i < kGroup * kDim; i += Shape::kThreads) {
      out[i] = FromFloat<T>(0.0f);
    }
    return;
  }
  float q[kGroup][8];
  const T* query = reinterpret_cast<const T*>(args.q.data) + t * args.q.stride + first_head * kDim;
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    Widen<T>(*reinterpret_cast<const uint4*>(query + h * kDim + Lane() % kLanesPerKey * 8), q[h]);
  }
  OwnKv<T> own;
  if (writes_kv) {
    own = {reinterpret_cast<const T*>(args.k.data) + t * args.k.stride + kv_head * kDim,
           reinterpret_cast<const T*>(args.v.data) + t * args.v.stride + kv_head * kDim, position};
    if (Shape::Warp() == 0 && blockIdx.z == 0) own.Write(kv);
  }
  __shared__ MergeSpace<kGroup> spaces[Shape::kUnits];
  MergeSpace<kGroup>& space = spaces[Shape::Unit()];
  // Thread i owns elements i, i + kThreads, ... of the group's outputs [kGroup, kDim].
  constexpr int kMine = (kGroup * kDim + Shape::kThreads - 1) / Shape::kThreads;
  float total[kMine] = {};
  SoftmaxState merged[kMine];
  for (int32_t segment = 0; segment <= position; segment += kKvSegment) {
    const int32_t end = min(position + 1, segment + kKvSegment);
    const auto walk = StrandWalk<Shape>::Of(segment, end);
    if (!ahead || segment > 0) tile.Fetch(kv, walk);
    AddStrands(kv, own, walk, q, args.scale, tile, space);
    Shape::Sync();
    const int used = min(kStrands, (end - segment + kTile - 1) / kTile);
#pragma unroll
    for (int m = 0; m < kMine; ++m) {
      const int i = m * Shape::kThreads + Shape::Thread();
      if (i >= kGroup * kDim) break;
      float output;
      const SoftmaxState part = space.Merged(i / kDim, i % kDim, used, output);
      if (segment == 0) {
        merged[m] = part;
        total[m] = output;
        continue;
      }
      const MergeFactors factors = Merge(merged[m], part);
      total[m] = MergeOutput(factors, total[m], output);
    }
    if (end <= position) Shape::Sync();  // `space` is used again
  }
#pragma unroll
  for (int m = 0; m < kMine; ++m) {
    const int i = m * Shape::kThreads + Shape::Thread();
    if (i < kGroup * kDim) out[i] = FromFloat<T>(total[m] / merged[m].sum);
  }
}

template <typename T, typename Shape>
void LaunchUnits(const AttentionInputs& args, const StepState& state,
                 const LaunchContext& context) {
  const bool writes_kv = args.write_kv.launch != nullptr && context.shape.decode;
  LaunchOverlapped(
      context,
      {.blocks = dim3(context.shape.tokens, CeilDiv(args.cache.num_kv_heads, Shape::kUnits),
                      args.group / Shape::kGroup),
       .threads = Shape::kBlockThreads},
      AttentionKernel<T, Shape>, args, writes_kv, context.shape.rows, state);
}

// Whether every unit has its warps at once.
template <typename Shape>
bool RunsAtOnce(const AttentionInputs& args, const LaunchContext& context) {
  return context.shape.tokens * args.cache.num_kv_heads * Shape::kWarps <=
         context.processors * Shape::kPerProcessor;
}

template <typename T, int kGroup>
void LaunchAttention(const void* kept, const StepState& state, const LaunchContext& context) {
  const AttentionInputs& args = ArgsAs<AttentionInputs>(kept);
  if (args.write_kv.launch != nullptr && !context.shape.decode) {
    args.write_kv.launch(args.write_kv.args, state, context);
  }
  if constexpr (kGroup == 1) {  // groups share what they read, and so have few units
    if (!RunsAtOnce<UnitShape<kStrands, 1>>(args, context)) {
      if (RunsAtOnce<UnitShape<4, 1>>(args, context)) {
        return LaunchUnits<T, UnitShape<4, 1>>(args, state, context);
      }
      if (RunsAtOnce<UnitShape<2, 1>>(args, context)) {
        return LaunchUnits<T, UnitShape<2, 1>>(args, state, context);
      }
      return LaunchUnits<T, UnitShape<1, 1>>(args, state, context);
    }
  }
  LaunchUnits<T, UnitShape<kStrands, kGroup>>(args, state, context);
}

template <typename T>
LaunchFn ChooseGroup(int32_t group) {
  // The largest that divides: several blocks share a KV head only where a group is odd or large.
  if (group % 8 == 0) return LaunchAttention<T, 8>;
  if (group % 4 == 0) return LaunchAttention<T, 4>;
  if (group % 3 == 0) return LaunchAttention<T, 3>;
  if (group % 2 == 0) return LaunchAttention<T, 2>;
  return LaunchAttention<T, 1>;
}

Result<BoundLaunch> BindAttention(const OpRecord& op, BindContext& context) {
  SPRY_ASSIGN_OR_RETURN(const AttentionInputs args, BindAttentionInputs(op, context, "cuda-lanes"));
  const LaunchFn launch =
      args.q.dtype == DType::kF16 ? ChooseGroup<F16>(args.group) : ChooseGroup<Bf16>(args.group);
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace

CudaAttentionBackend CudaLanesAttention() {
  return {.facts = {.name = "cuda-lanes",
                    .description = "one block per token and KV head, split over warps",
                    .activations = {DType::kF16, DType::kBF16},
                    .kvs = {DType::kF16, DType::kBF16},
                    .head_dims = {64},
                    .capturable = true},
          .bytes_per_block = KvBytesPerBlock,
          .bind_write_kv = BindWriteKv,
          .bind_attention = BindAttention};
}

}  // namespace spry::cuda
