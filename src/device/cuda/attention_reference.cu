// The attention backend "cuda-reference": any head size, KV as f32, bf16 or f16, every parameter.
// A block computes one query head of one token, segment after segment of kKvSegment positions; each
// sum is one chain in ascending order, so a result depends on nothing but the token and its cache.
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/kv_cache.cuh"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"
#include "ops/attention/softmax_state.h"
#include "ops/math.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 16;
constexpr unsigned kLaneMask = 0xffffu;

struct AttentionArgs {
  BoundLaunch rope;      // launch null: q and k come rotated
  BoundLaunch write_kv;  // launch null: an op of its own
  Matrix q;
  Matrix out;
  KvCache cache;
  AttentionParams params;
  const float* slopes = nullptr;
  const float* sinks = nullptr;
};

__device__ float Score(const AttentionArgs& args, int32_t head, int32_t distance, float product) {
  const AttentionParams& params = args.params;
  float score = params.scale * product;
  if (params.soft_cap > 0.0f) score = params.soft_cap * Tanh(score / params.soft_cap);
  if (params.has_alibi) score = fmaf(args.slopes[head], static_cast<float>(distance), score);
  return score;
}

// The sum of weights [begin, end) in 16 lanes, position j in lane j mod 16; every thread gets it.
__device__ float SumWeights(const float* weights, int32_t begin, int32_t end) {
  __shared__ float total;
  const int32_t lane = static_cast<int32_t>(threadIdx.x);
  if (lane < kLanes) {
    float sum = 0.0f;
    const int32_t first = begin + (lane - begin % kLanes + kLanes) % kLanes;
    for (int32_t j = first; j < end; j += kLanes) sum += weights[j - begin];
    sum = FoldLanes<kLanes>(sum, kLaneMask);
    if (lane == 0) total = sum;
  }
  __syncthreads();
  return total;
}

// One query head of one token over positions [begin, end), which lie in one segment. Leaves
// exp(score - max) in `weights` and the sum of values so weighted in `output` [Dv].
template <typename Kv>
__device__ SoftmaxState AttendSegment(const AttentionArgs& args, const int32_t* block_table,
                                      const float* q, int32_t position, int32_t begin, int32_t end,
                                      float* weights, float* output) {
  const KvCache& cache = args.cache;
  const int32_t head = static_cast<int32_t>(blockIdx.y);
  const int32_t kv_head = head / (args.params.num_heads / cache.num_kv_heads);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  SoftmaxState softmax;
  for (int32_t j = begin + thread; j < end; j += kThreads) {
    const Kv* key = cache.Key<Kv>(block_table[j / cache.block_size], j % cache.block_size, kv_head);
    float product = 0.0f;
    for (int32_t d = 0; d < cache.head_dim; ++d) product = fmaf(q[d], ToFloat(key[d]), product);
    const float score = Score(args, head, j - position, product);
    weights[j - begin] = score;
    softmax.max = fmaxf(softmax.max, score);
  }
  softmax.max = BlockReduce<kThreads>(softmax.max, [](float a, float b) { return fmaxf(a, b); });
  for (int32_t i = thread; i < end - begin; i += kThreads) {
    weights[i] = Exp(weights[i] - softmax.max);
  }
  __syncthreads();
  softmax.sum = SumWeights(weights, begin, end);
  for (int32_t d = thread; d < cache.v_head_dim; d += kThreads) {
    float sum = 0.0f;
    for (int32_t j = begin; j < end; ++j) {
      const Kv* value =
          cache.Value<Kv>(block_table[j / cache.block_size], j % cache.block_size, kv_head);
      sum = fmaf(weights[j - begin], ToFloat(value[d]), sum);
    }
    output[d] = sum;
  }
  return softmax;
}

// A token's query head over all its positions: segments in ascending order, then the sink as if it
// were one more key without a value. Thread d alone touches elements d, d + kThreads ... of
// `output` and `total`, both [Dv].
template <typename Kv>
__device__ float Attend(const AttentionArgs& args, const int32_t* block_table, const float* q,
                        int32_t position, float* weights, float* output, float* total) {
  const int32_t dim = args.cache.v_head_dim;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t window = args.params.window;
  for (int32_t d = thread; d < dim; d += kThreads) total[d] = 0.0f;
  SoftmaxState merged;
  for (int32_t begin = window > 0 ? max(0, position + 1 - window) : 0; begin <= position;) {
    const int32_t end = min(position + 1, (begin / kKvSegment + 1) * kKvSegment);
    const SoftmaxState segment =
        AttendSegment<Kv>(args, block_table, q, position, begin, end, weights, output);
    const MergeFactors factors = Merge(merged, segment);
    for (int32_t d = thread; d < dim; d += kThreads) {
      total[d] = MergeOutput(factors, total[d], output[d]);
    }
    begin = end;
    __syncthreads();  // weights are free again
  }
  if (args.params.has_sinks) {
    const float sink = args.sinks[blockIdx.y];
    const MergeFactors factors = Merge(merged, SoftmaxState{.max = sink, .sum = 1.0f});
    for (int32_t d = thread; d < dim; d += kThreads) {
      total[d] = MergeOutput(factors, total[d], 0.0f);
    }
  }
  return 1.0f / merged.sum;
}

// Shared memory: q [D], weights [kKvSegment], output [Dv], total [Dv].
template <typename T, typename Kv>
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(AttentionArgs args, View<T> q, View<T> out, StepState state) {
  const int32_t t = static_cast<int32_t>(blockIdx.x);
  if (t >= state.header->num_tokens) return;
  const int32_t r = state.token_rows[t];
  const int32_t head = static_cast<int32_t>(blockIdx.y);
  const KvCache& cache = args.cache;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  T* result = out.Row(t) + head * cache.v_head_dim;
  if (r < 0) {
    for (int32_t d = thread; d < cache.v_head_dim; d += kThreads) result[d] = FromFloat<T>(0.0f);
    return;
  }
  extern __shared__ float shared[];
  float* query = shared;
  float* weights = query + cache.head_dim;
  float* output = weights + kKvSegment;
  float* total = output + cache.v_head_dim;
  for (int32_t d = thread; d < cache.head_dim; d += kThreads) {
    query[d] = ToFloat(q.Row(t)[head * cache.head_dim + d]);
  }
  __syncthreads();
  const int32_t* block_table =
      state.block_tables + int64_t{state.rows[r].row} * cache.max_blocks_per_row;
  const float inverse =
      Attend<Kv>(args, block_table, query, state.positions[t], weights, output, total);
  for (int32_t d = thread; d < cache.v_head_dim; d += kThreads) {
    result[d] = FromFloat<T>(total[d] * inverse);
  }
}

size_t SharedBytes(const KvCache& cache) {
  return (cache.head_dim + kKvSegment + 2 * cache.v_head_dim) * sizeof(float);
}

template <typename T, typename Kv>
void LaunchAttention(const void* args, const StepState& state, const LaunchContext& context) {
  const AttentionArgs& attention = ArgsAs<AttentionArgs>(args);
  LaunchFolded(attention.rope, state, context);
  LaunchFolded(attention.write_kv, state, context);
  const dim3 grid(context.shape.tokens, attention.params.num_heads);
  AttentionKernel<T, Kv><<<grid, kThreads, SharedBytes(attention.cache), context.stream>>>(
      attention, ViewOf<T>(attention.q), ViewOf<T>(attention.out), state);
}

Result<BoundLaunch> BindAttention(const OpRecord& op, BindContext& context) {
  const AttentionParams params = op.params.As<AttentionParams>();
  const KvLayer& layer = context.program().kv_layers[params.layer.value()];
  AttentionArgs args{.q = context.Resolve(op.inputs[0]),
                     .out = context.Resolve(op.outputs[0]),
                     .cache = CacheOf(layer, params.layer, context),
                     .params = params};
  if (op.inputs.size() == 3) {
    SPRY_ASSIGN_OR_RETURN(args.write_kv, BindFoldedWriteKv(op, context));
  }
  if (params.rope.rotary_dim > 0) {
    SPRY_ASSIGN_OR_RETURN(args.rope, BindFoldedRope(op, context));
  }
  int next = 0;
  if (params.has_alibi) args.slopes = context.Floats(op.weights[next++]);
  if (params.has_sinks) args.sinks = context.Floats(op.weights[next]);
  CHECK(args.q.dtype == args.out.dtype);
  const LaunchFn launch = ForDType(args.q.dtype, [&layer]<typename T>(ElementOf<T>) -> LaunchFn {
    return ForDType(layer.dtype,
                    []<typename Kv>(ElementOf<Kv>) -> LaunchFn { return LaunchAttention<T, Kv>; });
  });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace

CudaAttentionBackend CudaReferenceAttention() {
  return {.facts = {.name = "cuda-reference",
                    .description = "plain kernels in the CPU reference's order, for every case",
                    .activations = {DType::kF32, DType::kBF16, DType::kF16},
                    .kvs = {DType::kF32, DType::kBF16, DType::kF16},
                    .window = true,
                    .soft_cap = true,
                    .alibi = true,
                    .sinks = true,
                    .capturable = true},
          .bytes_per_block = KvBytesPerBlock,
          .bind_write_kv = BindWriteKv,
          .bind_attention = BindAttention};
}

}  // namespace spry::cuda
