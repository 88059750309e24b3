// Attention of a decode step, for the backend "cuda" (attention.cu), which computes the same of
// steps with longer pieces.
//
// A unit (attention_decode_unit.cuh) is up to 8 query heads of one KV head for one token. Its warps
// are all kStrands where units are few, fewer where there are enough units to fill the card,
// because what runs at once has all of its first tiles on their way at once.
//
// Where units are few the segments of a row are spread over several blocks, and the last of these
// to end merges them. A unit also writes its own token's k and v to the cache, and takes them from
// where the projection left them, rotating its queries and its key where rope is folded in; its
// outputs go where the linear after it takes them (row_taker.h): one launch.
#pragma once

#include "device/cuda/attention_decode.h"
#include "device/cuda/attention_decode_unit.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/packed_rows.cuh"
#include "ops/attention/attention.h"

namespace spry::cuda {

// Where a unit's outputs go.
template <typename T, typename Shape>
struct UnitOutput {
  const InputPlace& place;
  T* first;  // of the unit's first head

  __device__ void Put(int head, int d, float value) const {
    first[place.Index(head * Shape::kDim + d)] = FromFloat<T>(value);
  }
  // Elements d, d + 8, d + 16 and d + 24 of one run of 32.
  __device__ void PutFour(int head, int d, const float4& values) const {
    T* at = first + place.Index(head * Shape::kDim + d);
    const int apart = place.Apart();
    at[0] = FromFloat<T>(values.x);
    at[apart] = FromFloat<T>(values.y);
    at[2 * apart] = FromFloat<T>(values.z);
    at[3 * apart] = FromFloat<T>(values.w);
  }
};

// Part of a row whose segments are spread over blocks.
__device__ inline void StorePart(const DecodeArgs& args, int32_t unit, int32_t segment, int head,
                                 int place, const SoftmaxPart& state, const float4& output) {
  const int32_t dim = args.cache.head_dim;
  float* part = args.scratch.Part(unit, segment, args.heads, dim) + head * (dim + 2);
  auto* pairs = reinterpret_cast<float2*>(part + 2 + place);
  if (place == 0) __stcg(pairs - 1, make_float2(state.max, state.sum));
  __stcg(pairs, make_float2(output.x, output.y));
  __stcg(pairs + 1, make_float2(output.z, output.w));
}

// The last block of a unit to come here merges all its segments.
template <typename T, typename Shape>
__device__ void MergeParts(const DecodeArgs& args, int32_t unit, int32_t num_segments,
                           const UnitOutput<T, Shape>& out) {
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
  // Two elements a thread, many segments of them on their way at once.
  constexpr int kAtOnce = 16;
  const int64_t distance = int64_t{args.heads} * (kDim + 2);
  for (int i = 2 * Shape::Thread(); i < args.heads * kDim; i += 2 * Shape::kThreads) {
    const float* part = args.scratch.Part(unit, 0, args.heads, kDim) + i / kDim * (kDim + 2);
    SoftmaxPart merged = SoftmaxPart::Unseen();
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
        const SoftmaxPart state{.max = states[s].x, .sum = states[s].y};
        if (segment + s == 0) {
          merged = state;
          total = outputs[s];
          continue;
        }
        const PartFactors factors = Append(merged, state);
        total.x = factors.Merged(total.x, outputs[s].x);
        total.y = factors.Merged(total.y, outputs[s].y);
      }
    }
    using Space = StrandSpace<kDim, Shape::kRows>;
    const float share = 1.0f / merged.sum;
    out.Put(i / kDim, Space::ElementOf(i % kDim), total.x * share);
    out.Put(i / kDim, Space::ElementOf(i % kDim + 1), total.y * share);
  }
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(Shape::kBlockThreads, Shape::kMinBlocks)
    DecodeKernel(const __grid_constant__ DecodeArgs args, bool writes_kv,
                 const __grid_constant__ InputPlace place,
                 const __grid_constant__ StepState state) {
  constexpr int kDim = Shape::kDim;
  LetNextStart();
  const int32_t t = static_cast<int32_t>(blockIdx.y);
  const int32_t y = static_cast<int32_t>(blockIdx.x) * Shape::kUnits + Shape::Unit();
  if (y >= args.cache.num_kv_heads * args.head_blocks) return;
  const int32_t kv_head = y / args.head_blocks;
  const int32_t heads = Shape::kRows == 1 ? 1 : args.heads;
  const int32_t row = state.token_slots[t];
  const int32_t position = state.positions[t];
  const int32_t end = row < 0 ? 0 : position + 1;
  const int32_t num_segments = (end + kKvSegment - 1) / kKvSegment;
  // Segments are spread over blocks only where all warps of a block have one unit.
  constexpr bool kSpreads = Shape::kWarps == kStrands;
  const int32_t first_segment = kSpreads ? static_cast<int32_t>(blockIdx.z) : 0;
  const int32_t segment_step = kSpreads ? static_cast<int32_t>(gridDim.z) : 1;
  const KvCache& cache = args.cache;
  const T* keys = cache.Key<T>(0, 0, kv_head);
  const int32_t* block_table = state.block_tables + int64_t{max(row, 0)} * cache.max_blocks_per_row;
  WarpStrands<T, Shape> strands{
      .rows = {keys, cache.Value<T>(0, 0, kv_head) - keys, block_table},
      .steps = {static_cast<uint32_t>(cache.BlockElements() / 8),
                static_cast<uint32_t>(args.block_shift)},
      .walk = {.end = static_cast<uint32_t>(end),
               .segment_step = static_cast<uint32_t>(segment_step) * kKvSegment}};
  // All but the own token was written by steps before: it can be on its way while the projection
  // ends. Where another launch writes the cache, nothing is.
  if (writes_kv) strands.Start(first_segment);
  AwaitPrevious();
  if (!writes_kv) strands.Start(first_segment);
  T* first_out = place.RowFrom<T>(t, y * heads * kDim);
  if (row < 0) {
    for (int i = Shape::Thread(); first_segment == 0 && i < heads * kDim; i += Shape::kThreads) {
      UnitOutput<T, Shape>{place, first_out}.Put(0, i, 0.0f);
    }
    return;
  }
  if (first_segment >= num_segments) return;
  const T* queries = reinterpret_cast<const T*>(args.q.data) + t * args.q.stride + y * heads * kDim;
  const int32_t own_block = block_table[position >> args.block_shift];
  const int32_t own_offset = position & ((1 << args.block_shift) - 1);
  OwnKv<T> own{cache.Key<T>(own_block, own_offset, kv_head),
               cache.Value<T>(own_block, own_offset, kv_head)};
  OwnKv<T> made = own;
  if (writes_kv) {
    made = {reinterpret_cast<const T*>(args.k.data) + t * args.k.stride + kv_head * kDim,
            reinterpret_cast<const T*>(args.v.data) + t * args.v.stride + kv_head * kDim};
  }
  __shared__ UnitHeads<T, kDim, Shape::kRows> unit_heads[Shape::kUnits];
  UnitHeads<T, kDim, Shape::kRows>& fetched = unit_heads[Shape::Unit()];
  if (args.rope_table != nullptr) {
    fetched.template FetchRotated<Shape>(args.rope_table + int64_t{position} * kDim, heads, queries,
                                         made.k);
    made.k = fetched.key;
  } else {
    fetched.template Fetch<Shape>(heads, [&](int row) { return queries + row * kDim; });
  }
  Shape::Sync();
  if (writes_kv && Shape::Warp() == 0 && first_segment == 0) {
    made.template Write<kDim>(const_cast<T*>(own.k), const_cast<T*>(own.v));
  }
  const Query<T, kDim> query(fetched.queries[min(LaneRows<T, kDim>::Group(), heads - 1)]);
  // Seldom used, so in shared memory, not in registers.
  __shared__ OwnKv<T> lasts[Shape::kUnits];
  __shared__ T* outs[Shape::kUnits];
  lasts[Shape::Unit()] = made;
  outs[Shape::Unit()] = first_out;
  __syncwarp();
  UnitWork<T, Shape> work{.query = query,
                          .own = &lasts[Shape::Unit()],
                          .num_rows = heads,
                          .shortest = static_cast<uint32_t>(end),
                          .scale = args.scale_log2,
                          .first_segment = first_segment,
                          .segment_step = segment_step};
  for (uint32_t& row_end : work.ends) row_end = end;
  __shared__ StrandSpace<kDim, Shape::kRows> spaces[Shape::kUnits];
  const bool spread = kSpreads && segment_step > 1 && num_segments > 1;
  const auto unit = static_cast<int32_t>(blockIdx.x * gridDim.y + blockIdx.y);
  RunUnit<T, Shape>(
      strands, work, spread, spaces[Shape::Unit()],
      [&](int32_t segment, int head, int place, const SoftmaxPart& part, const float4& output) {
        StorePart(args, unit, segment, head, place, part, output);
      },
      [&](int head, int d, const float4& outputs) {
        UnitOutput<T, Shape>{place, outs[Shape::Unit()]}.PutFour(head, d, outputs);
      });
  if (spread) {
    MergeParts<T, Shape>(args, unit, num_segments, {place, outs[Shape::Unit()]});
  }
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
                   DecodeKernel<T, Shape>, args, writes_kv,
                   PlaceOf(args.taker, args.out, context.shape.tokens, context), state);
}

// The most warps with which every unit runs at once.
template <typename T, int kDim, int kRows, int kWarps = kStrands>
void ChooseWarps(const DecodeArgs& args, const StepState& state, const LaunchContext& context) {
  using Shape = UnitShape<kDim, kRows, kWarps>;
  constexpr int kFewest = kRows == 1 ? 1 : 2;
  if constexpr (kWarps > kFewest) {
    const int64_t units =
        int64_t{context.shape.tokens} * args.cache.num_kv_heads * args.head_blocks;
    if (units * kWarps > int64_t{context.processors} * Shape::kPerProcessor) {
      return ChooseWarps<T, kDim, kRows, kWarps / 2>(args, state, context);
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
