#include "ops/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "device/cpu/reference/kernels.h"
#include "device/cpu/reference/kv_layout.h"
#include "device/cpu/reference/lanes.h"
#include "ops/attention/softmax_state.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix q, out;
  KvLayout layout;
  int32_t max_blocks_per_row = 0;
  const std::byte* cache = nullptr;
  AttentionParams params;
  const float* slopes = nullptr;
  const float* sinks = nullptr;
};

// One token's query head, and where its row's blocks are.
struct Query {
  const float* q = nullptr;
  const int32_t* block_table = nullptr;
  int32_t position = 0;
  int head = 0;
  int kv_head = 0;
};

template <typename Kv>
const typename Kv::Stored* KeyAt(const Args& args, const Query& query, int64_t j) {
  const int block_size = args.layout.block_size();
  return reinterpret_cast<const typename Kv::Stored*>(
      args.cache + args.layout.KeyOffset(query.block_table[j / block_size], query.kv_head,
                                         static_cast<int>(j % block_size)));
}

template <typename Kv>
const typename Kv::Stored* ValueAt(const Args& args, const Query& query, int64_t j) {
  const int block_size = args.layout.block_size();
  return reinterpret_cast<const typename Kv::Stored*>(
      args.cache + args.layout.ValueOffset(query.block_table[j / block_size], query.kv_head,
                                           static_cast<int>(j % block_size)));
}

// dots[j - begin] = q . k_j, each one chain of fmaf over D. Eight keys at a time, as a chain alone
// waits for itself.
template <typename Kv>
void DotProducts(const Args& args, const Query& query, int64_t begin, int64_t end, float* dots) {
  constexpr int kAtOnce = 8;
  const int64_t dim = args.params.head_dim;
  for (int64_t first = begin; first < end; first += kAtOnce) {
    const int count = static_cast<int>(std::min<int64_t>(kAtOnce, end - first));
    const typename Kv::Stored* keys[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
      keys[i] = KeyAt<Kv>(args, query, first + std::min(i, count - 1));
    }
    float sums[kAtOnce] = {};
    for (int64_t d = 0; d < dim; ++d) {
      for (int i = 0; i < kAtOnce; ++i) sums[i] = fmaf(query.q[d], Kv::Load(keys[i][d]), sums[i]);
    }
    for (int i = 0; i < count; ++i) dots[first - begin + i] = sums[i];
  }
}

// scale * dot, soft cap, alibi (by fmaf), in this order.
float Score(const Args& args, const Query& query, int64_t j, float dot) {
  const AttentionParams& params = args.params;
  float score = params.scale * dot;
  if (params.soft_cap > 0.0f) score = params.soft_cap * Tanh(score / params.soft_cap);
  if (params.has_alibi) {
    score = fmaf(args.slopes[query.head], static_cast<float>(j - query.position), score);
  }
  return score;
}

// The state of the keys [begin, end), which lie in one segment. The sum of exponentials is in
// lanes, key j in lane j mod 16 by its absolute position; each output is one chain of fmaf over j.
template <typename Kv>
SoftmaxState AttendSegment(const Args& args, const Query& query, int64_t begin, int64_t end,
                           float* scores, float* output) {
  DotProducts<Kv>(args, query, begin, end, scores);
  SoftmaxState state;
  for (int64_t j = begin; j < end; ++j) {
    float& score = scores[j - begin];
    score = Score(args, query, j, score);
    state.max = score > state.max ? score : state.max;
  }
  float lanes[kLanes] = {};
  const int64_t dim = args.params.v_head_dim;
  std::fill_n(output, dim, 0.0f);
  for (int64_t j = begin; j < end; ++j) {
    const float weight = Exp(scores[j - begin] - state.max);
    lanes[j % kLanes] += weight;
    const auto* value = ValueAt<Kv>(args, query, j);
    for (int64_t d = 0; d < dim; ++d) output[d] = fmaf(weight, Kv::Load(value[d]), output[d]);
  }
  state.sum = FoldLanes(lanes);
  return state;
}

// All segments in ascending order, then the sink as if it were one more key without a value.
// `scratch` has room for the scores and the output of a segment.
template <typename Kv>
void Attend(const Args& args, const Query& query, float* scratch, float* out) {
  const int64_t dim = args.params.v_head_dim;
  float* scores = scratch;
  float* segment_output = scratch + kKvSegment;
  const int64_t end = int64_t{query.position} + 1;
  const int64_t window = args.params.window;
  const int64_t begin = window > 0 ? std::max<int64_t>(0, end - window) : 0;
  SoftmaxState merged;
  std::fill_n(out, dim, 0.0f);
  for (int64_t at = begin; at < end;) {
    const int64_t cut = std::min(end, (at / kKvSegment + 1) * kKvSegment);
    const SoftmaxState segment = AttendSegment<Kv>(args, query, at, cut, scores, segment_output);
    const MergeFactors factors = Merge(merged, segment);
    for (int64_t d = 0; d < dim; ++d) out[d] = MergeOutput(factors, out[d], segment_output[d]);
    at = cut;
  }
  if (args.params.has_sinks) {
    const MergeFactors factors = Merge(merged, {.max = args.sinks[query.head], .sum = 1.0f});
    for (int64_t d = 0; d < dim; ++d) out[d] = MergeOutput(factors, out[d], 0.0f);
  }
  const float inverse = 1.0f / merged.sum;
  for (int64_t d = 0; d < dim; ++d) out[d] *= inverse;
}

// By (head, token): neighbouring tokens cost about the same, so whole heads are the fairest share.
template <typename Kv>
void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const AttentionParams& params = args.params;
  const int64_t tokens = state.header->num_tokens;
  float* scratch = reinterpret_cast<float*>(worker.scratch().data());
  const Share share = ShareOf(params.num_heads * tokens, worker);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int head = static_cast<int>(item / tokens);
    const int64_t t = item % tokens;
    float* out = args.out.Row(t) + head * params.v_head_dim;
    const int32_t r = state.token_rows[t];
    if (r < 0) {
      std::fill_n(out, params.v_head_dim, 0.0f);
      continue;
    }
    const Query query{
        .q = args.q.Row(t) + head * params.head_dim,
        .block_table = state.block_tables + int64_t{state.rows[r].row} * args.max_blocks_per_row,
        .position = state.positions[t],
        .head = head,
        .kv_head = head / (params.num_heads / params.num_kv_heads)};
    Attend<Kv>(args, query, scratch, out);
  }
}

}  // namespace

Result<BoundCall> BindAttention(const OpRecord& op, BindContext& context) {
  const AttentionParams params = op.params.As<AttentionParams>();
  const KvLayer& layer = context.program().kv_layers[params.layer.value()];
  Args args{.q = context.Resolve(op.inputs[0]),
            .out = context.Resolve(op.outputs[0]),
            .layout = KvLayout(layer, context.limits().block_size),
            .max_blocks_per_row = context.limits().max_blocks_per_row,
            .cache = context.kv_layer(params.layer),
            .params = params};
  int next_weight = 0;
  if (params.has_alibi) {
    SPRY_ASSIGN_OR_RETURN(args.slopes, context.LoadFloats(op.weights[next_weight++]));
  }
  if (params.has_sinks) {
    SPRY_ASSIGN_OR_RETURN(args.sinks, context.LoadFloats(op.weights[next_weight++]));
  }
  KernelFn run = Run<KvF32>;
  if (layer.dtype == DType::kBF16) run = Run<KvBf16>;
  if (layer.dtype == DType::kF16) run = Run<KvF16>;
  return BoundCall{.op = op.id, .run = run, .args = context.Keep(args)};
}

}  // namespace spry::reference
