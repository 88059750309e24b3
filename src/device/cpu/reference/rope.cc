#include "ops/rope.h"

#include <cmath>

#include "device/cpu/reference/kernels.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix q, k;
  const float* table = nullptr;
  int64_t table_rows = 0;
  RopeParams params;
};

// For a pair (a, b) at angle: a' = fmaf(a, cos, -(b * sin)), b' = fmaf(b, cos, a * sin).
template <bool kInterleaved>
void RotateHead(int half, const float* __restrict table, float* __restrict head) {
  const float* cosines = table;
  const float* sines = table + half;
  for (int i = 0; i < half; ++i) {
    float& first = head[kInterleaved ? 2 * i : i];
    float& second = head[kInterleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second;
    first = fmaf(a, cosines[i], -(b * sines[i]));
    second = fmaf(b, cosines[i], a * sines[i]);
  }
}

template <bool kInterleaved>
void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const RopeParams& params = args.params;
  const Share share = ShareOf(state.header->num_tokens, worker);
  for (int64_t t = share.begin; t < share.end; ++t) {
    const int32_t position = state.positions[t];
    CHECK(position >= 0 && position < args.table_rows);  // lengths are checked at submission
    const float* table = args.table + int64_t{position} * params.rotary_dim;
    for (int h = 0; h < params.num_heads; ++h) {
      RotateHead<kInterleaved>(params.rotary_dim / 2, table, args.q.Row(t) + h * params.head_dim);
    }
    for (int h = 0; h < params.num_kv_heads; ++h) {
      RotateHead<kInterleaved>(params.rotary_dim / 2, table, args.k.Row(t) + h * params.head_dim);
    }
  }
}

}  // namespace

Result<BoundCall> BindRope(const OpRecord& op, BindContext& context) {
  Args args{.q = context.Resolve(op.inputs[0]),
            .k = context.Resolve(op.inputs[1]),
            .table_rows = context.program().weight(op.weights[0]).rows,
            .params = op.params.As<RopeParams>()};
  SPRY_ASSIGN_OR_RETURN(args.table, context.LoadFloats(op.weights[0]));
  return BoundCall{.op = op.id,
                   .run = args.params.interleaved ? Run<true> : Run<false>,
                   .args = context.Keep(args)};
}

}  // namespace spry::reference
