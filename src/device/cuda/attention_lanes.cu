// The attention backend "cuda-lanes": 16-bit KV and heads of 64, without tensor cores. It needs
// little shared memory, so its blocks start beside those of the projection before them and have
// their keys when it ends: a decode step over a few hundred tokens costs less than with "cuda"
// (attention.cu), a long prompt much more.
//
// A block computes all query heads of one KV head for one token, so K and V are read once for the
// group. Positions are taken in tiles of 16; tile i of a segment of kKvSegment belongs to warp
// i mod kWarps. Within a tile a few lanes share a key, and the same lanes take the same key's
// value, so a score never leaves its lanes; each warp keeps a running softmax over its tiles, the
// warps' states become one by their common maximum, then segments are merged in order. All of that
// depends on absolute positions only, so a token's result does not depend on batch or chunk
// (docs/architecture.md).
//
// In a decode step a block also writes its own token's k and v to the cache, and takes them from
// where the projection left them: one launch. In a mixed step tokens of one prompt need each
// other's keys, so write_kv is a launch before.
#include <bit>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/kv_cache.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"
#include "ops/attention/softmax_state.h"
#include "ops/math.h"

namespace spry::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarpThreads;
constexpr int kTile = 16;  // positions

struct AttentionArgs {
  BoundLaunch write_kv;  // launch null: an op of its own
  Matrix q, k, v, out;   // k, v: with write_kv folded in
  KvCache cache;
  float scale = 1.0f;
  int32_t group = 1;        // query heads per KV head
  int32_t block_shift = 0;  // block sizes are powers of two
};

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
struct KvRows {
  const T* keys;  // of block 0
  int64_t value_distance;
  int64_t block_elements;
  const int32_t* block_table;
  int32_t block_shift;
  int32_t position;  // whose own key and value are at own_k and own_v, when own_k is not null
  const T* own_k;
  const T* own_v;
};

// What a warp knows of a softmax over its tiles, for kGroup heads. A lane holds 8 elements of each
// output, summed over the keys that were its own.
template <int kGroup>
struct WarpState {
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

template <typename T, int kDim, int kGroup>
struct Attention {
  static constexpr int kLanesPerKey = kDim / 8;
  static constexpr int kKeysPerLoad = kWarpThreads / kLanesPerKey;
  static constexpr int kLoads = kTile / kKeysPerLoad;

  // A lane's part of one tile of positions [begin, min(begin + kTile, end)).
  struct KvTile {
    uint4 keys[kLoads];
    uint4 values[kLoads];
    int32_t first;  // this lane's positions: first, first + kKeysPerLoad ..., below end
    int32_t end;

    __device__ int32_t PositionOf(int load) const {
      return min(first + load * kKeysPerLoad, end - 1);
    }
    __device__ static int32_t Element() {
      return static_cast<int32_t>(threadIdx.x) % kLanesPerKey * 8;
    }
    // All from the cache, where the own token's place holds nothing yet.
    __device__ void FetchCached(const KvRows<T>& kv, int32_t begin, int32_t end_position) {
      first = begin + static_cast<int32_t>(threadIdx.x) % kWarpThreads / kLanesPerKey;
      end = end_position;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const int32_t j = PositionOf(i);
        const int32_t offset = j & ((1 << kv.block_shift) - 1);
        const T* key = kv.keys + kv.block_table[j >> kv.block_shift] * kv.block_elements +
                       offset * kDim + Element();
        keys[i] = *reinterpret_cast<const uint4*>(key);
        values[i] = *reinterpret_cast<const uint4*>(key + kv.value_distance);
      }
    }
    __device__ void FetchOwn(const KvRows<T>& kv) {
      if (kv.own_k == nullptr) return;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        if (PositionOf(i) != kv.position) continue;
        keys[i] = *reinterpret_cast<const uint4*>(kv.own_k + Element());
        values[i] = *reinterpret_cast<const uint4*>(kv.own_v + Element());
      }
    }
  };

  __device__ static void AddTile(const KvTile& tile, const float (&q)[kGroup][8], float scale,
                                 WarpState<kGroup>& state) {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      float scores[kLoads];
      float max = state.softmax[h].max;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        float k[8];
        Widen<T>(tile.keys[i], k);
        float product = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; ++e) product = fmaf(q[h][e], k[e], product);
#pragma unroll
        for (int step = kLanesPerKey / 2; step > 0; step /= 2) {
          product += __shfl_xor_sync(0xffffffffu, product, step);
        }
        scores[i] = tile.first + i * kKeysPerLoad < tile.end ? product * scale : -INFINITY;
        max = fmaxf(max, scores[i]);
      }
#pragma unroll
      for (int step = kLanesPerKey; step < kWarpThreads; step *= 2) {
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
      }
      const float keep = Exp(state.softmax[h].max - max);
      state.softmax[h].max = max;
      // Of this lane's keys; the lanes are summed once, at the end of the segment.
      state.softmax[h].sum *= keep;
#pragma unroll
      for (int e = 0; e < 8; ++e) state.output[h][e] *= keep;
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const float weight = Exp(scores[i] - max);
        state.softmax[h].sum += weight;
        float v[8];
        Widen<T>(tile.values[i], v);
#pragma unroll
        for (int e = 0; e < 8; ++e) state.output[h][e] = fmaf(weight, v[e], state.output[h][e]);
      }
    }
  }
};

// The states of all warps, for merging.
template <int kDim, int kGroup>
struct MergeSpace {
  float max[kGroup][kWarps];
  float sum[kGroup][kWarps];
  __align__(16) float output[kWarps][kGroup][kDim];

  // Sums the lanes and leaves this warp's state.
  __device__ void Put(WarpState<kGroup>& state) {
    constexpr int kLanesPerKey = kDim / 8;
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      float total = state.softmax[h].sum;
#pragma unroll
      for (int step = kLanesPerKey; step < kWarpThreads; step *= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, step);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          state.output[h][e] += __shfl_xor_sync(0xffffffffu, state.output[h][e], step);
        }
      }
      if (lane == 0) {
        max[h][warp] = state.softmax[h].max;
        sum[h][warp] = total;
      }
      if (lane < kLanesPerKey) {
        auto* to = reinterpret_cast<float4*>(&output[warp][h][lane * 8]);
        const float(&o)[8] = state.output[h];
        to[0] = make_float4(o[0], o[1], o[2], o[3]);
        to[1] = make_float4(o[4], o[5], o[6], o[7]);
      }
    }
  }

  // The segment's state of head h and its output[d]: a sum over warps in ascending order. A warp
  // without a tile has a maximum of -inf and adds nothing.
  __device__ SoftmaxState Merged(int h, int d, float& merged_output) const {
    float largest = max[h][0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) largest = fmaxf(largest, max[h][w]);
    SoftmaxState state{.max = largest};
    merged_output = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = Exp(max[h][w] - largest);
      state.sum = fmaf(sum[h][w], factor, state.sum);
      merged_output = fmaf(output[w][h][d], factor, merged_output);
    }
    return state;
  }
};

template <typename T>
__device__ void WriteOwnKv(const KvRows<T>& kv, T* keys, int32_t dim) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t offset = kv.position & ((1 << kv.block_shift) - 1);
  T* key = keys + kv.block_table[kv.position >> kv.block_shift] * kv.block_elements + offset * dim;
  if (thread < dim) {
    key[thread] = kv.own_k[thread];
  } else if (thread < 2 * dim) {
    key[kv.value_distance + thread - dim] = kv.own_v[thread - dim];
  }
}

template <typename T, int kDim, int kGroup>
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(const __grid_constant__ AttentionArgs args, bool writes_kv,
                    const __grid_constant__ StepState state) {
  using Tile = Attention<T, kDim, kGroup>;
  static_assert(2 * kDim <= kThreads);
  LetNextStart();
  const int32_t t = static_cast<int32_t>(blockIdx.x);
  const int32_t kv_head = static_cast<int32_t>(blockIdx.y);
  const int32_t first_head = kv_head * args.group + static_cast<int32_t>(blockIdx.z) * kGroup;
  T* out = reinterpret_cast<T*>(args.out.data) + t * args.out.stride + first_head * kDim;
  const int32_t row = state.token_slots[t];
  const int32_t position = state.positions[t];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpThreads;
  T* keys = args.cache.Key<T>(0, 0, kv_head);
  const KvRows<T> kv{
      .keys = keys,
      .value_distance = args.cache.Value<T>(0, 0, kv_head) - keys,
      .block_elements = args.cache.BlockElements(),
      .block_table = state.block_tables + int64_t{max(row, 0)} * args.cache.max_blocks_per_row,
      .block_shift = args.block_shift,
      .position = position,
      .own_k = writes_kv
                   ? reinterpret_cast<const T*>(args.k.data) + t * args.k.stride + kv_head * kDim
                   : nullptr,
      .own_v = writes_kv
                   ? reinterpret_cast<const T*>(args.v.data) + t * args.v.stride + kv_head * kDim
                   : nullptr};
  const int32_t warp_begin = thread / kWarpThreads * kTile;
  typename Tile::KvTile tile;
  // In a decode step all but the own token was written by steps before: it can be on its way while
  // the projection ends.
  const bool ahead = writes_kv && row >= 0 && warp_begin <= position;
  if (ahead) tile.FetchCached(kv, warp_begin, min(position + 1, kKvSegment));
  AwaitPrevious();
  float q[kGroup][8];
  const T* query = reinterpret_cast<const T*>(args.q.data) + t * args.q.stride + first_head * kDim;
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    Widen<T>(*reinterpret_cast<const uint4*>(query + h * kDim + lane % Tile::kLanesPerKey * 8),
             q[h]);
  }
  if (row < 0) {
    for (int i = thread; i < kGroup * kDim; i += kThreads) out[i] = FromFloat<T>(0.0f);
    return;
  }
  if (writes_kv) WriteOwnKv(kv, keys, kDim);
  __shared__ MergeSpace<kDim, kGroup> space;
  // Thread i owns elements i, i + kThreads, ... of the group's outputs [kGroup, kDim].
  constexpr int kMine = (kGroup * kDim + kThreads - 1) / kThreads;
  float total[kMine] = {};
  SoftmaxState merged[kMine];
  WarpState<kGroup> warp_state;
  for (int32_t segment = 0; segment <= position; segment += kKvSegment) {
    const int32_t end = min(position + 1, segment + kKvSegment);
    warp_state.Reset();
    for (int32_t begin = segment + warp_begin; begin < end; begin += kWarps * kTile) {
      if (!ahead || begin != warp_begin) tile.FetchCached(kv, begin, end);
      tile.FetchOwn(kv);
      Tile::AddTile(tile, q, args.scale, warp_state);
    }
    space.Put(warp_state);
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kMine; ++m) {
      const int i = m * kThreads + thread;
      if (i >= kGroup * kDim) break;
      float output;
      const SoftmaxState part = space.Merged(i / kDim, i % kDim, output);
      if (segment == 0) {
        merged[m] = part;
        total[m] = output;
        continue;
      }
      const MergeFactors factors = Merge(merged[m], part);
      total[m] = MergeOutput(factors, total[m], output);
    }
    if (end <= position) __syncthreads();  // `space` is used again
  }
#pragma unroll
  for (int m = 0; m < kMine; ++m) {
    const int i = m * kThreads + thread;
    if (i < kGroup * kDim) out[i] = FromFloat<T>(total[m] / merged[m].sum);
  }
}

template <typename T, int kDim, int kGroup>
void LaunchAttention(const void* kept, const StepState& state, const LaunchContext& context) {
  const AttentionArgs& args = ArgsAs<AttentionArgs>(kept);
  const bool folded = args.write_kv.launch != nullptr;
  if (folded && !context.shape.decode) args.write_kv.launch(args.write_kv.args, state, context);
  const bool writes_kv = folded && context.shape.decode;
  LaunchOverlapped(
      context,
      {.blocks = dim3(context.shape.tokens, args.cache.num_kv_heads, args.group / kGroup),
       .threads = kThreads},
      AttentionKernel<T, kDim, kGroup>, args, writes_kv, state);
}

template <typename T, int kDim>
LaunchFn ChooseGroup(int32_t group) {
  // The largest that divides: several blocks share a KV head only where a group is odd or large.
  if (group % 8 == 0) return LaunchAttention<T, kDim, 8>;
  if (group % 4 == 0) return LaunchAttention<T, kDim, 4>;
  if (group % 3 == 0) return LaunchAttention<T, kDim, 3>;
  if (group % 2 == 0) return LaunchAttention<T, kDim, 2>;
  return LaunchAttention<T, kDim, 1>;
}

Result<BoundLaunch> BindAttention(const OpRecord& op, BindContext& context) {
  const AttentionParams params = op.params.As<AttentionParams>();
  const KvLayer& layer = context.program().kv_layers[params.layer.value()];
  AttentionArgs args{.q = context.Resolve(op.inputs[0]),
                     .out = context.Resolve(op.outputs[0]),
                     .cache = CacheOf(layer, params.layer, context),
                     .scale = params.scale,
                     .group = params.num_heads / params.num_kv_heads};
  args.block_shift = std::countr_zero(static_cast<uint32_t>(args.cache.block_size));
  if (op.inputs.size() == 3) {
    args.k = context.Resolve(op.inputs[1]);
    args.v = context.Resolve(op.inputs[2]);
    SPRY_ASSIGN_OR_RETURN(args.write_kv, BindFoldedWriteKv(op, context));
  }
  if (args.q.dtype != layer.dtype || params.head_dim != params.v_head_dim) {
    return Unimplemented(
        "attention backend cuda-lanes: activations and KV cache must be of one type, "
        "keys and values of one head size; use cuda-reference");
  }
  constexpr int kDim = 64;
  const LaunchFn launch = layer.dtype == DType::kF16 ? ChooseGroup<F16, kDim>(args.group)
                                                     : ChooseGroup<Bf16, kDim>(args.group);
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
