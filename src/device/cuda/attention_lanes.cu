// The attention backend "cuda-lanes": 16-bit KV and heads of 64, each with its own keys, without
// tensor cores. It needs little shared memory, so its blocks start beside those of the projection
// before them and have their keys when it ends: a decode step over a few hundred tokens costs less
// than with "cuda" (attention.cu), a long prompt much more.
//
// A unit is one head of one token or, in a mixed step, of two neighbouring tokens of one request,
// for which keys and values are read and widened once. Positions are taken in tiles of 16; tile i
// of a segment of kKvSegment belongs to strand i mod kStrands. Within a tile a few lanes share a
// key, and the same lanes take the same key's value, so a score never leaves its lanes; a strand is
// a running softmax over its tiles, the strands' states become one by their common maximum, then
// segments are merged in order. All of that depends on absolute positions only, so a token's result
// does not depend on batch or chunk (docs/architecture.md). Neither does it depend on how many
// warps share a unit's strands: all kStrands where units are few, one where there are enough units
// to fill the card.
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

constexpr int kTogether = 2;  // tokens of a unit of a mixed step

// How a kernel shares out units of up to kTokens tokens: kWarps warps each; a block has at least 4
// warps.
template <int kWarps_, int kTokens_>
struct UnitShape : Units<kWarps_, std::max(kWarps_, 4)> {
  static constexpr int kTokens = kTokens_;
  // Warps of a multiprocessor. More than so many leave registers for less than a tile.
  static constexpr int kPerProcessor = kWarps_ == kStrands || kTokens > 1 ? 16
                                       : kWarps_ == 1                     ? 24
                                                                          : 20;
  static constexpr int kMinBlocks = kPerProcessor / UnitShape::kBlockWarps;
};

// The tokens of a unit: `count` from `first` on, of one request. None: another unit has them.
struct UnitTokens {
  int32_t first = 0;
  int32_t count = 0;
  int32_t row = -1;      // the request's permanent row; below 0: padding
  int32_t position = 0;  // of the first

  // Of the block of token t of `num_tokens`: kTokens that follow each other in one request are its
  // first one's, any others each their own.
  template <int kTokens>
  __device__ static UnitTokens Of(const StepState& state, int32_t t, int32_t num_tokens) {
    UnitTokens unit{t, 1, state.token_slots[t], state.positions[t]};
    if constexpr (kTokens > 1) {
      const int32_t first = t / kTokens * kTokens;
      bool together = first + kTokens <= num_tokens && unit.row >= 0;
#pragma unroll
      for (int i = 0; i < kTokens; ++i) {
        together &= state.token_slots[min(first + i, num_tokens - 1)] == unit.row;
      }
      if (together) unit.count = t == first ? kTokens : 0;
    }
    return unit;
  }
};

// exp of a difference of scores: what it weighs is rounded to 16 bits.
__device__ inline float FastExp(float x) { return Exp2(x * kLog2E); }

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

// What a warp knows of a softmax over a strand's tiles, for each token of a unit. A lane holds 8
// elements of each output, summed over the keys that were its own.
template <int kTokens>
struct StrandState {
  SoftmaxState softmax[kTokens];
  float output[kTokens][8];

  __device__ void Reset() {
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      softmax[n] = {};
#pragma unroll
      for (int e = 0; e < 8; ++e) output[n][e] = 0.0f;
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

// What each token of a unit may see: one position more than the one before it. A tile of which a
// token sees nothing leaves no trace in its state.
template <int kTokens>
struct TokenEnds {
  int32_t first = 0;  // of the first token
  int32_t count = 0;  // of tokens

  // The end of what `token` sees of positions up to `end`, which is the last token's.
  __device__ int32_t Within(int32_t end, int token) const {
    if constexpr (kTokens == 1) return end;
    return token < count ? min(end, first + token) : 0;
  }
  __device__ bool Sees(int token, int32_t begin) const {
    return kTokens == 1 || (token < count && begin < first + token);
  }
};

// Adds the keys of a tile to the softmaxes. weights: of one of the lane's four keys (load Lane() %
// 8 / 2), which two lanes have in common.
template <typename T, typename Shape>
__device__ void AddKeys(const LaneTile& tile, const TileAt& at,
                        const TokenEnds<Shape::kTokens>& ends, const float (&q)[Shape::kTokens][8],
                        float scale, StrandState<Shape::kTokens>& state,
                        float (&weights)[Shape::kTokens]) {
  constexpr int kTokens = Shape::kTokens;
  const int32_t mine = Lane() / kLanesPerKey + Lane() % kLanesPerKey / 2 * kKeysPerLoad;
  float products[kTokens][kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    float k[8];
    Widen<T>(tile.keys[i], k);
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      products[n][i] = 0.0f;
#pragma unroll
      for (int e = 0; e < 8; ++e) products[n][i] = fmaf(q[n][e], k[e], products[n][i]);
    }
  }
  // Token beside token, for the latency of each exchange.
  float scores[kTokens];
  float max[kTokens];
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    float two[2];
    AddHalves(products[n], 4, two);
    float one[1];
    AddHalves(two, 2, one);
    const float product = one[0] + __shfl_xor_sync(0xffffffffu, one[0], 1);
    scores[n] = at.begin + mine < ends.Within(at.end, n) ? product * scale : -INFINITY;
    max[n] = fmaxf(state.softmax[n].max, scores[n]);
  }
#pragma unroll
  for (int step = 2; step < kWarpThreads; step *= 2) {
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      max[n] = fmaxf(max[n], __shfl_xor_sync(0xffffffffu, max[n], step));
    }
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    SoftmaxState& softmax = state.softmax[n];
    if (softmax.max != -INFINITY) {
      const float keep = FastExp(softmax.max - max[n]);
      softmax.sum *= keep;
#pragma unroll
      for (int e = 0; e < 8; ++e) state.output[n][e] *= keep;
    }
    softmax.max = max[n];
    weights[n] = ends.Sees(n, at.begin) ? FastExp(scores[n] - max[n]) : 0.0f;
  }
}

// Sums are of this lane's keys; the lanes are summed once, at the end of the strand.
template <typename T, typename Shape>
__device__ void AddValues(const LaneTile& tile, const float (&weights)[Shape::kTokens],
                          StrandState<Shape::kTokens>& state) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    float v[8];
    Widen<T>(tile.values[i], v);
#pragma unroll
    for (int n = 0; n < Shape::kTokens; ++n) {
      const float weight =
          __shfl_sync(0xffffffffu, weights[n], Lane() / kLanesPerKey * kLanesPerKey + 2 * i);
      state.softmax[n].sum += weight;
#pragma unroll
      for (int e = 0; e < 8; ++e) state.output[n][e] = fmaf(weight, v[e], state.output[n][e]);
    }
  }
}

// The states of a unit's strands, for merging.
template <int kTokens>
struct MergeSpace {
  float max[kTokens][kStrands];
  float sum[kTokens][kStrands];
  __align__(16) float output[kStrands][kTokens][kDim];

  // Sums the lanes.
  __device__ void Put(int strand, const StrandState<kTokens>& state) {
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      float total = state.softmax[n].sum;
#pragma unroll
      for (int step = kLanesPerKey; step < kWarpThreads; step *= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, step);
      }
      float four[4];
      AddHalves(state.output[n], 8, four);
      float two[2];
      AddHalves(four, 16, two);
      const int element = Lane() % kLanesPerKey * 8 + (Lane() & 8) / 2 + (Lane() & 16) / 8;
      *reinterpret_cast<float2*>(&output[strand][n][element]) = make_float2(two[0], two[1]);
      if (Lane() == 0) {
        max[n][strand] = state.softmax[n].max;
        sum[n][strand] = total;
      }
    }
  }

  // The segment's state of token n and its output[d]: a sum over `used` strands in ascending
  // order. By whole warps, which have one n.
  __device__ SoftmaxState Merged(int n, int d, int used, float& merged_output) const {
    const int own = Lane() % kStrands;
    const float own_max = own < used ? max[n][own] : -INFINITY;
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
      state.sum = fmaf(sum[n][s], factor, state.sum);
      merged_output = fmaf(output[s][n][d], factor, merged_output);
    }
    return state;
  }
};

// The strands of one segment that are this warp's; the first tile is on its way. The place of a
// tile's keys, and of its values, is filled again as soon as they are used.
template <typename T, typename Shape>
__device__ void AddStrands(const LaneKv<T>& kv, const OwnKv<T>& own, StrandWalk<Shape> walk,
                           const TokenEnds<Shape::kTokens>& ends,
                           const float (&q)[Shape::kTokens][8], float scale, LaneTile& tile,
                           MergeSpace<Shape::kTokens>& space) {
  StrandState<Shape::kTokens> state;
  state.Reset();
#pragma unroll 1
  while (walk.inside()) {
    tile.FetchOwn(own, walk.at);
    const StrandWalk<Shape> next = walk.Next();
    float weights[Shape::kTokens];
    AddKeys<T, Shape>(tile, walk.at, ends, q, scale, state, weights);
    if (next.inside()) tile.FetchKeys(kv, next.at);
    AddValues<T, Shape>(tile, weights, state);
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
  constexpr int kTokens = Shape::kTokens;
  LetNextStart();
  const UnitTokens unit = UnitTokens::Of<kTokens>(state, static_cast<int32_t>(blockIdx.x),
                                                  static_cast<int32_t>(gridDim.x));
  if (unit.count == 0) return AwaitPrevious();
  const int32_t t = unit.first;
  const int32_t head = static_cast<int32_t>(blockIdx.y) * Shape::kUnits + Shape::Unit();
  if (head >= args.cache.num_kv_heads) return;
  T* out = reinterpret_cast<T*>(args.out.data) + t * args.out.stride + head * kDim;
  const FirstBlocks first(
      state.block_tables + int64_t{min(t, num_rows - 1)} * args.cache.max_blocks_per_row,
      Shape::Warp() * kTile, args.block_shift, args.cache.max_blocks_per_row);
  const int32_t row = unit.row;
  const int32_t position = unit.position + unit.count - 1;  // the last
  const TokenEnds<kTokens> ends{unit.position + 1, unit.count};
  T* keys = args.cache.Key<T>(0, 0, head);
  const LaneKv<T> kv{
      .keys = keys,
      .value_distance = static_cast<int32_t>(args.cache.Value<T>(0, 0, head) - keys),
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
    for (int i = Shape::Thread(); i < unit.count * kDim; i += Shape::kThreads) {
      out[i / kDim * args.out.stride + i % kDim] = FromFloat<T>(0.0f);
    }
    return;
  }
  float q[kTokens][8];
  const T* query = reinterpret_cast<const T*>(args.q.data) + t * args.q.stride + head * kDim;
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    const T* mine = query + min(n, unit.count - 1) * args.q.stride + Lane() % kLanesPerKey * 8;
    Widen<T>(*reinterpret_cast<const uint4*>(mine), q[n]);
  }
  OwnKv<T> own;
  if (writes_kv) {
    own = {reinterpret_cast<const T*>(args.k.data) + t * args.k.stride + head * kDim,
           reinterpret_cast<const T*>(args.v.data) + t * args.v.stride + head * kDim, position};
    if (Shape::Warp() == 0) own.Write(kv);
  }
  __shared__ MergeSpace<kTokens> spaces[Shape::kUnits];
  MergeSpace<kTokens>& space = spaces[Shape::Unit()];
  // Thread i owns elements i, i + kThreads, ... of the tokens' outputs [kTokens, kDim].
  constexpr int kMine = (kTokens * kDim + Shape::kThreads - 1) / Shape::kThreads;
  float total[kMine] = {};
  SoftmaxState merged[kMine];
  for (int32_t segment = 0; segment <= position; segment += kKvSegment) {
    const int32_t end = min(position + 1, segment + kKvSegment);
    const auto walk = StrandWalk<Shape>::Of(segment, end);
    if (!ahead || segment > 0) tile.Fetch(kv, walk);
    AddStrands(kv, own, walk, ends, q, args.scale, tile, space);
    Shape::Sync();
#pragma unroll
    for (int m = 0; m < kMine; ++m) {
      const int i = m * Shape::kThreads + Shape::Thread();
      if (i >= unit.count * kDim) break;
      if (!ends.Sees(i / kDim, segment)) continue;
      const int32_t seen = ends.Within(end, i / kDim) - segment;
      const int used = min(kStrands, (seen + kTile - 1) / kTile);
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
    if (i >= unit.count * kDim) break;
    out[i / kDim * args.out.stride + i % kDim] = FromFloat<T>(total[m] / merged[m].sum);
  }
}

template <typename T, typename Shape>
void LaunchUnits(const AttentionInputs& args, const StepState& state,
                 const LaunchContext& context) {
  const bool writes_kv = args.write_kv.launch != nullptr && context.shape.decode;
  LaunchOverlapped(
      context,
      {.blocks = dim3(context.shape.tokens, CeilDiv(args.cache.num_kv_heads, Shape::kUnits)),
       .threads = Shape::kBlockThreads},
      AttentionKernel<T, Shape>, args, writes_kv, context.shape.rows, state);
}

// The most warps with which every unit has them at once.
template <typename T, int kTokens, int kWarps = kStrands>
void ChooseWarps(const AttentionInputs& args, const StepState& state,
                 const LaunchContext& context) {
  using Shape = UnitShape<kWarps, kTokens>;
  if constexpr (kWarps > 1) {
    const int64_t units = int64_t{CeilDiv(context.shape.tokens, kTokens)} * args.cache.num_kv_heads;
    if (units * kWarps > int64_t{context.processors} * Shape::kPerProcessor) {
      return ChooseWarps<T, kTokens, kWarps / 2>(args, state, context);
    }
  }
  LaunchUnits<T, Shape>(args, state, context);
}

template <typename T>
void LaunchAttention(const void* kept, const StepState& state, const LaunchContext& context) {
  const AttentionInputs& args = ArgsAs<AttentionInputs>(kept);
  LaunchFolded(args.rope, state, context);
  if (context.shape.decode) return ChooseWarps<T, 1>(args, state, context);
  LaunchFolded(args.write_kv, state, context);
  ChooseWarps<T, kTogether>(args, state, context);
}

Result<BoundLaunch> BindAttention(const OpRecord& op, BindContext& context) {
  SPRY_ASSIGN_OR_RETURN(const AttentionInputs args, BindAttentionInputs(op, context, "cuda-lanes"));
  const LaunchFn launch =
      args.q.dtype == DType::kF16 ? LaunchAttention<F16> : LaunchAttention<Bf16>;
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace

CudaAttentionBackend CudaLanesAttention() {
  return {.facts = {.name = "cuda-lanes",
                    .description = "without tensor cores; decode steps over short contexts",
                    .activations = {DType::kF16, DType::kBF16},
                    .kvs = {DType::kF16, DType::kBF16},
                    .head_dims = {64},
                    .grouped_heads = false,
                    .capturable = true},
          .bytes_per_block = KvBytesPerBlock,
          .bind_write_kv = BindWriteKv,
          .bind_attention = BindAttention};
}

}  // namespace spry::cuda
