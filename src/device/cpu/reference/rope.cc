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
void RotateHead(const RopeParams& params, const float* table, float* head) {
  const int half = params.rotary_dim / 2;
  const float* cosines = table;
  const float* sines = table + half;
  const int step = params.interleaved ? 2 : 1;
  const int other = params.interleaved ? 1 : half;
  for (int i = 0; i < half; ++i) {
    float& first = head[i * step];
    float& second = head[i * step + other];
    const float a = first, b = second;
    first = fmaf(a, cosines[i], -(b * sines[i]));
    second = fmaf(b, cosines[i], a * sines[i]);
  }
}

void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const RopeParams& params = args.params;
  const Share share = ShareOf(state.header->num_tokens, worker);
  for (int64_t t = share.begin; t < share.end; ++t) {
    const int32_t position = state.positions[t];
    CHECK(position >= 0 && position < args.table_rows);  // lengths are checked at submission
    const float* table = args.table + int64_t{position} * params.rotary_dim;
    for (int h = 0; h < params.num_heads; ++h) {
      RotateHead(params, table, args.q.Row(t) + h * params.head_dim);
    }
    for (int h = 0; h < params.num_kv_heads; ++h) {
      RotateHead(params, table, args.k.Row(t) + h * params.head_dim);
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
  return BoundCall{.op = op.id, .run = Run, .args = context.Keep(args)};
}

}  // namespace spry::reference
