// Attention of a decode step, for the backend "cuda" (attention.cu), which computes the same of
// steps with longer pieces.
//
// A unit is up to 8 query heads of one KV head for one token, so K and V are read once for them.
// Tile i of a segment of kKvSegment positions belongs to strand i mod kStrands; a strand is a
// running softmax over its tiles (attention_strand.cuh), the strands of a segment become one by
// their common maximum, then segments are merged in order. How many warps share a unit's strands
// changes nothing: all kStrands where units are few, fewer where there are enough units to fill the
// card, because what runs at once has all of its first tiles on their way at once.
//
// Where units are few the segments of a row are spread over several blocks, and the last of these
// to end merges them. A unit also writes its own token's k and v to the cache, and takes them from
// where the projection left them: one launch.
#pragma once

#include <algorithm>

#include "device/cuda/attention_decode.h"
#include "device/cuda/attention_strand.cuh"
#include "device/cuda/attention_units.cuh"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"

namespace spry::cuda {

// How a kernel shares out units: kWarps warps each. A block has at least 4 warps, unless the space
// in which it merges several heads is what limits how many run at once.
template <int kDim_, int kHeads_, int kWarps_>
struct UnitShape : Units<kWarps_, kHeads_ == 1 ? std::max(kWarps_, 4) : kWarps_> {
  static constexpr int kDim = kDim_;
  static constexpr int kHeads = kHeads_;  // at most
  // Warps of a multiprocessor: more leave registers for less than a tile.
  static constexpr int kPerProcessor = kDim == 64 ? 16 : 8;
  static constexpr int kMinBlocks = kPerProcessor / UnitShape::kBlockWarps;
};

// The tiles of one warp: strand after strand of a segment, then of the block's next segment.
template <typename Shape>
struct TileWalk {
  uint32_t end;
  uint32_t segment_step;  // positions

  __device__ static uint32_t Strand(uint32_t begin) { return begin / kTileKeys % kStrands; }
  __device__ static uint32_t Segment(uint32_t begin) { return begin / kKvSegment; }
  __device__ static uint32_t First(uint32_t segment_begin) {
    return segment_begin + Shape::Warp() * kTileKeys;
  }
  __device__ uint32_t Next(uint32_t begin) const {
    const uint32_t next = begin + kStrands * kTileKeys;
    if (next < end && Segment(next) == Segment(begin)) return next;
    const uint32_t segment_begin = begin & ~uint32_t{kKvSegment - 1};
    if constexpr (Shape::kWarps < kStrands) {
      const uint32_t strand = Strand(begin) + Shape::kWarps;
      const uint32_t strand_begin = segment_begin + strand * kTileKeys;
      if (strand < kStrands && strand_begin < end) return strand_begin;
    }
    return First(segment_begin + segment_step);
  }
};

// Where the strands of a unit's segment become one.
template <int kDim, int kHeads>
struct StrandSpace {
  static constexpr int kStride = kDim + 4;
  static constexpr int kJoinThreads = std::max(kHeads * kStrands, kWarpThreads);
  __align__(16) float output[kStrands][kHeads][kStride];
  float total[kHeads][kDim];  // of the segments before
  float max[kHeads][kStrands];
  float sum[kHeads][kStrands];
  float factor[kHeads][kStrands];
  SoftmaxState joined[kHeads];   // the segment
  SoftmaxState running[kHeads];  // it and those before
  MergeFactors merge[kHeads];

  // Where element d of an output is: what a warp stores at once meets all banks.
  __device__ static int PlaceOf(int d) { return d / 64 * 64 + d % 8 * 8 + d % 64 / 8; }

  template <typename T>
  __device__ void Put(uint32_t strand, int heads, const StrandState<T, kDim, kHeads>& state) {
    const int g = LaneRows<T, kDim>::Group();
    const int t = LaneRows<T, kDim>::Quad();
#pragma unroll
    for (int i = 0; i < StrandState<T, kDim, kHeads>::kMine; ++i) {
      const int head = 2 * t + i;
      float total = state.sum[i];
      total += __shfl_xor_sync(0xffffffffu, total, 8);
      total += __shfl_xor_sync(0xffffffffu, total, 16);
      if (head >= heads) continue;
      if (g == 0) {
        max[head][strand] = state.max[i];
        sum[head][strand] = total;
      }
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          output[strand][head][PlaceOf(n / 4 * 64 + g * 8 + n % 4 * 2 + e)] =
              state.output[n][2 * e + i];
        }
      }
    }
  }

  // The segment's state of each head, what each of its `used` strands counts in it, and what it
  // counts beside those before. By the first threads of a unit, whole warps, between barriers.
  __device__ void Join(int thread, int used, bool first) {
    if (thread >= kJoinThreads) return;
    const int head = thread / kStrands % kHeads;
    const int strand = thread % kStrands;
    const float own_max = strand < used ? max[head][strand] : -INFINITY;
    SoftmaxState state{.max = own_max};
#pragma unroll
    for (int step = 1; step < kStrands; step *= 2) {
      state.max = fmaxf(state.max, __shfl_xor_sync(0xffffffffu, state.max, step));
    }
    const float own = strand < used ? Exp(own_max - state.max) : 0.0f;
    const float own_sum = strand < used ? sum[head][strand] : 0.0f;
#pragma unroll
    for (int s = 0; s < kStrands; ++s) {
      const int lane = thread % kWarpThreads / kStrands * kStrands + s;
      state.sum = fmaf(__shfl_sync(0xffffffffu, own_sum, lane), __shfl_sync(0xffffffffu, own, lane),
                       state.sum);
    }
    if (thread >= kHeads * kStrands) return;
    factor[head][strand] = own;
    if (strand != 0) return;
    joined[head] = state;
    if (first) {
      running[head] = state;
    } else {
      SoftmaxState before = running[head];
      merge[head] = Merge(before, state);
      running[head] = before;
    }
  }

  __device__ float Output(int head, int d, int used) const {
    float merged = 0.0f;
#pragma unroll
    for (int s = 0; s < kStrands; ++s) {
      if (s >= used) break;
      merged = fmaf(output[s][head][PlaceOf(d)], factor[head][s], merged);
    }
    return merged;
  }
};

// A unit's query, read again for every tile: registers hold what is on its way instead.
template <typename T, int kDim>
struct Query {
  const T* chunks;  // this lane's first

  __device__ explicit Query(const T* head) : chunks(Pinned(head + LaneRows<T, kDim>::Quad() * 8)) {}

  __device__ uint4 Chunk(int c) const {
    uint4 value;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(chunks + c * 32));
    return value;
  }
};

// The key and value of the token itself: where the projection left them or, if another launch has
// written them, in the cache.
template <typename T>
struct OwnKv {
  const T* k;
  const T* v;

  // By one warp.
  template <int kDim>
  __device__ void Write(T* key, T* value) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    if (lane >= kDim / 8) return;
    *reinterpret_cast<uint4*>(key + lane * 8) = *reinterpret_cast<const uint4*>(k + lane * 8);
    *reinterpret_cast<uint4*>(value + lane * 8) = *reinterpret_cast<const uint4*>(v + lane * 8);
  }
};

// A warp on its way through its tiles; `place` is of the one after that in `tile`.
template <typename T, typename Shape>
struct WarpTiles {
  static constexpr int kDim = Shape::kDim;
  LaneRows<T, kDim> rows;
  CacheSteps steps;
  TileWalk<Shape> walk;
  uint32_t begin = 0;  // of the tile that is here or on its way
  TileParts<T, kDim> tile;
  TilePlace place;

  __device__ void Start(uint32_t segment) {
    begin = walk.First(segment * kKvSegment);
    if (begin >= walk.end) return;
    place.Find<kDim>(rows.block_table, steps, begin, walk.end - 1);
    tile.FetchKeys(rows, place);
    tile.FetchValues(rows, place);
    FindNext(walk.Next(begin));
  }
  __device__ void FindNext(uint32_t next) {
    if (next < walk.end) place.Find<kDim>(rows.block_table, steps, next, walk.end - 1);
  }

  // Those of one segment. The place of a tile's keys, and of its values, is filled again as soon
  // as they are used.
  __device__ void AddSegment(uint32_t segment, const Query<T, kDim>& query, const OwnKv<T>& own,
                             int heads, float scale, StrandSpace<kDim, Shape::kHeads>& space) {
    StrandState<T, kDim, Shape::kHeads> state;
    state.Reset();
#pragma unroll 1
    while (begin < walk.end && walk.Segment(begin) == segment) {
      const auto last = static_cast<int32_t>(walk.end - 1 - begin);
      if (last < kTileKeys) tile.PutLast(last, own.k, own.v);
      const uint32_t next = walk.Next(begin);
      float scores[4] = {};
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c) {
        tile.Score(query.Chunk(c), c, scores);
        if (next < walk.end) tile.FetchKeys(rows, place, c);
      }
      state.Weigh(scores, last, scale);
      state.AddValues(tile, scores);
      if (next < walk.end) {
        tile.FetchValues(rows, place);
        FindNext(walk.Next(next));
      }
      const uint32_t strand = walk.Strand(begin);
      if (walk.Strand(next) != strand || walk.Segment(next) != segment) {
        space.Put(strand, heads, state);
        state.Reset();
      }
      begin = next;
    }
  }
};

// One part of a row whose segments are spread over blocks.
__device__ inline void StorePart(const DecodeArgs& args, int32_t unit, int32_t segment, int head,
                                 int d, const SoftmaxState& state, float output) {
  const int32_t dim = args.cache.head_dim;
  float* part = args.scratch.Part(unit, segment, args.heads, dim) + head * (dim + 2);
  if (d == 0) {
    __stcg(part, state.max);
    __stcg(part + 1, state.sum);
  }
  __stcg(part + 2 + d, output);
}

// The last block of a unit to come here merges all its segments.
template <typename T, typename Shape>
__device__ void MergeParts(const DecodeArgs& args, int32_t unit, int32_t num_segments, T* out) {
  constexpr int kDim = Shape::kDim;
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* arrived = &args.scratch.arrived[unit];
    is_last = atomicAdd(arrived, 1) == min(gridDim.z, num_segments) - 1;
    if (is_last) *arrived = 0;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  // Two neighbouring elements a thread, many segments of them on their way at once.
  constexpr int kAtOnce = 16;
  const int64_t distance = int64_t{args.heads} * (kDim + 2);
  for (int i = 2 * Shape::Thread(); i < args.heads * kDim; i += 2 * Shape::kThreads) {
    const float* part = args.scratch.Part(unit, 0, args.heads, kDim) + i / kDim * (kDim + 2);
    SoftmaxState merged;
    float2 total = {};
    for (int32_t segment = 0; segment < num_segments; segment += kAtOnce) {
      float2 states[kAtOnce];
      float2 outputs[kAtOnce];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        const float* from = part + min(segment + s, num_segments - 1) * distance;
        states[s] = __ldcg(reinterpret_cast<const float2*>(from));
        outputs[s] = __ldcg(reinterpret_cast<const float2*>(from + 2 + i % kDim));
      }
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s) {
        if (segment + s >= num_segments) break;
        const SoftmaxState state{.max = states[s].x, .sum = states[s].y};
        if (segment + s == 0) {
          merged = state;
          total = outputs[s];
          continue;
        }
        const MergeFactors factors = Merge(merged, state);
        total.x = MergeOutput(factors, total.x, outputs[s].x);
        total.y = MergeOutput(factors, total.y, outputs[s].y);
      }
    }
    out[i] = FromFloat<T>(total.x / merged.sum);
    out[i + 1] = FromFloat<T>(total.y / merged.sum);
  }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kBlockThreads, Shape::kMinBlocks)
    DecodeKernel(const __grid_constant__ DecodeArgs args, bool writes_kv,
                 const __grid_constant__ StepState state) {
  constexpr int kDim = Shape::kDim;
  LetNextStart();
  const int32_t t = static_cast<int32_t>(blockIdx.y);
  const int32_t y = static_cast<int32_t>(blockIdx.x) * Shape::kUnits + Shape::Unit();
  if (y >= args.cache.num_kv_heads * args.head_blocks) return;
  const int32_t kv_head = y / args.head_blocks;
  const int32_t heads = Shape::kHeads == 1 ? 1 : args.heads;
  const int32_t row = state.token_slots[t];
  const int32_t position = state.positions[t];
  const int32_t end = row < 0 ? 0 : position + 1;
  const int32_t num_segments = (end + kKvSegment - 1) / kKvSegment;
  const auto first_segment = static_cast<int32_t>(blockIdx.z);
  const KvCache& cache = args.cache;
  const T* keys = cache.Key<T>(0, 0, kv_head);
  const int32_t* block_table = state.block_tables + int64_t{max(row, 0)} * cache.max_blocks_per_row;
  WarpTiles<T, Shape> tiles{
      .rows = {keys, cache.Value<T>(0, 0, kv_head) - keys, block_table},
      .steps = {static_cast<uint32_t>(cache.BlockElements() / 8),
                static_cast<uint32_t>(args.block_shift)},
      .walk = {.end = static_cast<uint32_t>(end), .segment_step = gridDim.z * kKvSegment}};
  // All but the own token was written by steps before: it can be on its way while the projection
  // ends. Where another launch writes the cache, nothing is.
  if (writes_kv) tiles.Start(first_segment);
  AwaitPrevious();
  if (!writes_kv) tiles.Start(first_segment);
  T* out = reinterpret_cast<T*>(args.out.data) + t * args.out.stride + y * heads * kDim;
  if (row < 0) {
    for (int i = Shape::Thread(); first_segment == 0 && i < heads * kDim; i += Shape::kThreads) {
      out[i] = FromFloat<T>(0.0f);
    }
    return;
  }
  if (first_segment >= num_segments) return;
  const Query<T, kDim> query(reinterpret_cast<const T*>(args.q.data) + t * args.q.stride +
                             (y * heads + min(LaneRows<T, kDim>::Group(), heads - 1)) * kDim);
  const int32_t own_block = block_table[position >> args.block_shift];
  const int32_t own_offset = position & ((1 << args.block_shift) - 1);
  OwnKv<T> own{cache.Key<T>(own_block, own_offset, kv_head),
               cache.Value<T>(own_block, own_offset, kv_head)};
  if (writes_kv) {
    const OwnKv<T> made{
        reinterpret_cast<const T*>(args.k.data) + t * args.k.stride + kv_head * kDim,
        reinterpret_cast<const T*>(args.v.data) + t * args.v.stride + kv_head * kDim};
    if (Shape::Warp() == 0 && first_segment == 0) {
      made.template Write<kDim>(const_cast<T*>(own.k), const_cast<T*>(own.v));
    }
    own = made;
  }
  __shared__ StrandSpace<kDim, Shape::kHeads> spaces[Shape::kUnits];
  StrandSpace<kDim, Shape::kHeads>& space = spaces[Shape::Unit()];
  const bool spread = Shape::kWarps == kStrands && gridDim.z > 1 && num_segments > 1;
  const auto unit = static_cast<int32_t>(blockIdx.x * gridDim.y + blockIdx.y);
  for (int32_t segment = first_segment; segment < num_segments; segment += gridDim.z) {
    tiles.AddSegment(segment, query, own, heads, args.scale, space);
    Shape::Sync();
    const int used = min(kStrands, (end - segment * kKvSegment + kTileKeys - 1) / kTileKeys);
    const bool is_first = segment == first_segment;
    const bool is_last = segment + static_cast<int32_t>(gridDim.z) >= num_segments;
    space.Join(Shape::Thread(), used, is_first);
    Shape::Sync();
#pragma unroll 1
    for (int i = Shape::Thread(); i < heads * kDim; i += Shape::kThreads) {
      const int head = i / kDim;
      const int d = i % kDim;
      float value = space.Output(head, d, used);
      if (spread) {
        StorePart(args, unit, segment, head, d, space.joined[head], value);
        continue;
      }
      if (!is_first) value = MergeOutput(space.merge[head], space.total[head][d], value);
      if (is_last) {
        out[i] = FromFloat<T>(value / space.running[head].sum);
      } else {
        space.total[head][d] = value;
      }
    }
    if (!is_last) Shape::Sync();  // the space is used again
  }
  if (spread) MergeParts<T, Shape>(args, unit, num_segments, out);
}

template <typename T, typename Shape>
void LaunchUnits(const DecodeArgs& args, const StepState& state, const LaunchContext& context) {
  const bool writes_kv = args.write_kv.launch != nullptr;
  const int32_t heads = args.cache.num_kv_heads * args.head_blocks;
  constexpr int kBlocks = Shape::kPerProcessor / kStrands;  // of a multiprocessor
  const int32_t splits =
      Shape::kWarps == kStrands
          ? args.scratch.Splits(context.shape.tokens * heads, context.processors * kBlocks)
          : 1;
  LaunchOverlapped(context,
                   {.blocks = dim3(CeilDiv(heads, Shape::kUnits), context.shape.tokens, splits),
                    .threads = Shape::kBlockThreads},
                   DecodeKernel<T, Shape>, args, writes_kv, state);
}

// The most warps with which every unit runs at once.
template <typename T, int kDim, int kHeads, int kWarps = kStrands>
void ChooseWarps(const DecodeArgs& args, const StepState& state, const LaunchContext& context) {
  using Shape = UnitShape<kDim, kHeads, kWarps>;
  constexpr int kFewest = kHeads == 1 ? 1 : 2;
  if constexpr (kWarps > kFewest) {
    const int64_t units =
        int64_t{context.shape.tokens} * args.cache.num_kv_heads * args.head_blocks;
    if (units * kWarps > int64_t{context.processors} * Shape::kPerProcessor) {
      return ChooseWarps<T, kDim, kHeads, kWarps / 2>(args, state, context);
    }
  }
  LaunchUnits<T, Shape>(args, state, context);
}

template <typename T>
void LaunchDecode(const DecodeArgs& args, const StepState& state, const LaunchContext& context) {
  const bool wide = args.cache.head_dim == 128;
  if (args.heads == 1) {
    return wide ? ChooseWarps<T, 128, 1>(args, state, context)
                : ChooseWarps<T, 64, 1>(args, state, context);
  }
  wide ? ChooseWarps<T, 128, 8>(args, state, context) : ChooseWarps<T, 64, 8>(args, state, context);
}

}  // namespace spry::cuda
