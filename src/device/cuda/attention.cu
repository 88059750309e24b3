// The attention backend "cuda": 16-bit KV, head sizes 64 and 128, decode and prefill alike.
//
// A block computes all query heads of one KV head for one token, so K and V are read once for the
// group. Positions are taken in tiles of 16; tile i of a segment of kKvSegment belongs to warp
// i mod kWarps, each warp keeps a running softmax over its tiles, the warps' states are merged in
// order, then the segments. All of that depends on absolute positions only, so a token's result
// does not depend on batch or chunk (DESIGN's row-function rule).
//
// In a decode step a block writes its own token's k and v to the cache first: one launch. In a
// mixed step tokens of one prompt need each other's keys, so write_kv is a launch before.
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
  int32_t group = 1;  // query heads per KV head
};

// 8 neighbouring 16-bit elements.
template <typename T>
__device__ void Load8(const T* p, float (&out)[8]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(p);
  const auto* pairs = reinterpret_cast<const typename PairOf<T>::Type*>(&bits);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v = ToFloats(pairs[i]);
    out[2 * i] = v.x;
    out[2 * i + 1] = v.y;
  }
}

// What a warp knows of a softmax over its tiles, for up to kGroup heads. Lane l holds elements
// [l * kOwn, (l + 1) * kOwn) of each output.
template <int kGroup, int kOwn>
struct WarpState {
  SoftmaxState softmax[kGroup];
  float output[kGroup][kOwn];

  __device__ void Reset() {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      softmax[h] = {};
#pragma unroll
      for (int e = 0; e < kOwn; ++e) output[h][e] = 0.0f;
    }
  }
};

template <typename T, int kDim, int kGroup>
struct Attention {
  static constexpr int kLanesPerKey = kDim / 8;
  static constexpr int kKeysPerLoad = kWarpThreads / kLanesPerKey;
  static constexpr int kLoads = kTile / kKeysPerLoad;
  static constexpr int kOwn = kDim / kWarpThreads;
  using State = WarpState<kGroup, kOwn>;

  // One tile of positions [begin, min(begin + kTile, end)); scores go through `weights`, which is
  // this warp's own [kGroup][kTile].
  __device__ static void AddTile(const AttentionArgs& args, const int32_t* block_table,
                                 int32_t kv_head, const float (&q)[kGroup][8], int32_t begin,
                                 int32_t end, float (*weights)[kTile], State& state) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const KvCache& cache = args.cache;
    float keys[kLoads][8];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int32_t j = min(begin + i * kKeysPerLoad + lane / kLanesPerKey, end - 1);
      const T* key = cache.Key<T>(block_table[j / cache.block_size], j % cache.block_size, kv_head);
      Load8(key + lane % kLanesPerKey * 8, keys[i]);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int slot = i * kKeysPerLoad + lane / kLanesPerKey;
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        float product = 0.0f;
#pragma unroll
        for (int e = 0; e < 8; ++e) product = fmaf(q[h][e], keys[i][e], product);
#pragma unroll
        for (int step = kLanesPerKey / 2; step > 0; step /= 2) {
          product += __shfl_xor_sync(0xffffffffu, product, step);
        }
        if (lane % kLanesPerKey == 0) {
          weights[h][slot] = begin + slot < end ? product * args.scale : -INFINITY;
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      // Both halves of the warp hold the tile's scores.
      const float score = weights[h][lane % kTile];
      float max = score;
#pragma unroll
      for (int step = kTile / 2; step > 0; step /= 2) {
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, step));
      }
      max = fmaxf(max, state.softmax[h].max);
      const float weight = Exp(score - max);
      float sum = weight;
#pragma unroll
      for (int step = kTile / 2; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, step);
      }
      const float keep = Exp(state.softmax[h].max - max);
      state.softmax[h].sum = fmaf(state.softmax[h].sum, keep, sum);
      state.softmax[h].max = max;
#pragma unroll
      for (int e = 0; e < kOwn; ++e) state.output[h][e] *= keep;
      __syncwarp();
      if (lane < kTile) weights[h][lane] = weight;
    }
    __syncwarp();
#pragma unroll 4
    for (int slot = 0; slot < kTile; ++slot) {
      const int32_t j = min(begin + slot, end - 1);  // beyond the end the weight is 0
      const T* value =
          cache.Value<T>(block_table[j / cache.block_size], j % cache.block_size, kv_head) +
          lane * kOwn;
      float v[kOwn];
#pragma unroll
      for (int e = 0; e < kOwn; e += 2) {
        const float2 pair = ToFloats(*reinterpret_cast<const typename PairOf<T>::Type*>(value + e));
        v[e] = pair.x;
        v[e + 1] = pair.y;
      }
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        const float weight = weights[h][slot];
#pragma unroll
        for (int e = 0; e < kOwn; ++e) {
          state.output[h][e] = fmaf(weight, v[e], state.output[h][e]);
        }
      }
    }
    __syncwarp();
  }
};

// The states of all warps, for merging.
template <int kDim, int kGroup>
struct MergeSpace {
  SoftmaxState softmax[kWarps][kGroup];
  float output[kWarps][kGroup][kDim];
  float weights[kWarps][kGroup][kTile];
};

template <typename T>
__device__ void WriteOwnKv(const AttentionArgs& args, int32_t t, int32_t block, int32_t offset,
                           int32_t kv_head) {
  const int32_t dim = args.cache.head_dim;
  const T* k = reinterpret_cast<const T*>(args.k.data) + t * args.k.stride + kv_head * dim;
  const T* v = reinterpret_cast<const T*>(args.v.data) + t * args.v.stride + kv_head * dim;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  if (thread < dim) {
    args.cache.Key<T>(block, offset, kv_head)[thread] = k[thread];
  } else if (thread < 2 * dim) {
    args.cache.Value<T>(block, offset, kv_head)[thread - dim] = v[thread - dim];
  }
}

template <typename T, int kDim, int kGroup>
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(AttentionArgs args, bool writes_kv, StepState state) {
  using Tile = Attention<T, kDim, kGroup>;
  static_assert(2 * kDim <= kThreads);
  LetNextStart();
  AwaitPrevious();
  const int32_t t = static_cast<int32_t>(blockIdx.x);
  const int32_t kv_head = static_cast<int32_t>(blockIdx.y);
  const int32_t first_head = kv_head * args.group + static_cast<int32_t>(blockIdx.z) * kGroup;
  T* out = reinterpret_cast<T*>(args.out.data) + t * args.out.stride + first_head * kDim;
  const int32_t row = state.token_slots[t];
  const int32_t position = state.positions[t];
  const int thread = static_cast<int>(threadIdx.x);
  if (row < 0) {
    for (int i = thread; i < kGroup * kDim; i += kThreads) out[i] = FromFloat<T>(0.0f);
    return;
  }
  const int32_t* block_table = state.block_tables + int64_t{row} * args.cache.max_blocks_per_row;
  if (writes_kv) {
    WriteOwnKv<T>(args, t, block_table[position / args.cache.block_size],
                  position % args.cache.block_size, kv_head);
    __syncthreads();  // the block reads them back
  }
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  float q[kGroup][8];
  const T* query = reinterpret_cast<const T*>(args.q.data) + t * args.q.stride + first_head * kDim;
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    Load8(query + h * kDim + lane % Tile::kLanesPerKey * 8, q[h]);
  }
  __shared__ MergeSpace<kDim, kGroup> space;
  // Thread i owns elements i, i + kThreads, ... of the group's outputs [kGroup, kDim].
  constexpr int kMine = (kGroup * kDim + kThreads - 1) / kThreads;
  float total[kMine] = {};
  SoftmaxState merged[kMine];
  typename Tile::State warp_state;
  for (int32_t segment = 0; segment <= position; segment += kKvSegment) {
    const int32_t end = min(position + 1, segment + kKvSegment);
    warp_state.Reset();
    for (int32_t begin = segment + warp * kTile; begin < end; begin += kWarps * kTile) {
      Tile::AddTile(args, block_table, kv_head, q, begin, end, space.weights[warp], warp_state);
    }
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      if (lane == 0) space.softmax[warp][h] = warp_state.softmax[h];
#pragma unroll
      for (int e = 0; e < Tile::kOwn; ++e) {
        space.output[warp][h][lane * Tile::kOwn + e] = warp_state.output[h][e];
      }
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kMine; ++m) {
      const int i = m * kThreads + thread;
      if (i >= kGroup * kDim) break;
      const int h = i / kDim;
      const int d = i % kDim;
      SoftmaxState part;
      float output = 0.0f;
      const int used = min(kWarps, (end - segment + kTile - 1) / kTile);
      for (int w = 0; w < used; ++w) {
        const MergeFactors factors = Merge(part, space.softmax[w][h]);
        output = MergeOutput(factors, output, space.output[w][h][d]);
      }
      const MergeFactors factors = Merge(merged[m], part);
      total[m] = MergeOutput(factors, total[m], output);
    }
    __syncthreads();  // `space` is free again
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
  if (op.inputs.size() == 3) {
    args.k = context.Resolve(op.inputs[1]);
    args.v = context.Resolve(op.inputs[2]);
    SPRY_ASSIGN_OR_RETURN(args.write_kv, BindFoldedWriteKv(op, context));
  }
  if (args.q.dtype != layer.dtype || params.head_dim != params.v_head_dim) {
    return Unimplemented(
        "attention backend cuda: activations and KV cache must be of one type, "
        "keys and values of one head size; use cuda-reference");
  }
  const bool wide = params.head_dim == 128;
  const bool half = layer.dtype == DType::kF16;
  const LaunchFn launch =
      half ? (wide ? ChooseGroup<F16, 128>(args.group) : ChooseGroup<F16, 64>(args.group))
           : (wide ? ChooseGroup<Bf16, 128>(args.group) : ChooseGroup<Bf16, 64>(args.group));
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace

CudaAttentionBackend CudaAttention() {
  return {.facts = {.name = "cuda",
                    .description = "one block per token and KV head, split over warps",
                    .activations = {DType::kF16, DType::kBF16},
                    .kvs = {DType::kF16, DType::kBF16},
                    .head_dims = {64, 128},
                    .capturable = true},
          .bytes_per_block = KvBytesPerBlock,
          .bind_write_kv = BindWriteKv,
          .bind_attention = BindAttention};
}

}  // namespace spry::cuda
