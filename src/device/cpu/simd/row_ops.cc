#include "device/cpu/simd/row_ops.h"

#include <algorithm>

#include "ops/norm.h"
#include "ops/rope.h"

namespace spry {
namespace {

// ---- layer_norm, rms_norm ----

struct NormArgs {
  Matrix x, y;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float epsilon = 0.0f;
  void (*run)(const NormRow& row) = nullptr;
};

void RunNorm(const void* opaque, const StepState& state, Worker& worker) {
  const NormArgs& args = *static_cast<const NormArgs*>(opaque);
  const Share share = ShareOf(NumRows(args.x.rows, state), worker);
  for (int64_t r = share.begin; r < share.end; ++r) {
    args.run({.x = args.x.Row(r),
              .y = args.y.Row(r),
              .width = args.x.width,
              .weight = args.weight,
              .bias = args.bias,
              .epsilon = args.epsilon});
  }
}

Result<BoundCall> BindNorm(const OpRecord& op, BindContext& context,
                           void (*run)(const NormRow& row)) {
  NormArgs args = {.x = context.Resolve(op.inputs[0]),
                   .y = context.Resolve(op.outputs[0]),
                   .epsilon = op.params.As<NormParams>().epsilon,
                   .run = run};
  SPRY_ASSIGN_OR_RETURN(args.weight, context.LoadFloats(op.weights[0]));
  if (op.id == OpId::kLayerNorm) {
    SPRY_ASSIGN_OR_RETURN(args.bias, context.LoadFloats(op.weights[1]));
  }
  return BoundCall{.op = op.id, .run = RunNorm, .args = context.Keep(args)};
}

// ---- rope ----

struct RopeArgs {
  Matrix q, k;
  const float* table = nullptr;
  int64_t table_rows = 0;
  RopeParams params;
  void (*run)(const RopeHeads& heads) = nullptr;
};

void RunRope(const void* opaque, const StepState& state, Worker& worker) {
  const RopeArgs& args = *static_cast<const RopeArgs*>(opaque);
  const Share share = ShareOf(state.header->num_tokens, worker);
  for (int64_t t = share.begin; t < share.end; ++t) {
    const int32_t position = state.positions[t];
    CHECK(position >= 0 && position < args.table_rows);  // lengths are checked at submission
    RopeHeads heads = {.heads = args.q.Row(t),
                       .num_heads = args.params.num_heads,
                       .head_dim = args.params.head_dim,
                       .rotary_dim = args.params.rotary_dim,
                       .table = args.table + int64_t{position} * args.params.rotary_dim};
    args.run(heads);
    heads.heads = args.k.Row(t);
    heads.num_heads = args.params.num_kv_heads;
    args.run(heads);
  }
}

// ---- activation, gated_activation, add: by pieces of rows ----

constexpr int64_t kPieceColumns = 512;

struct ElementwiseArgs {
  Matrix a, b, y;  // b: no data: nothing to multiply by
  void (*activate)(const float* x, const float* up, int64_t count, float* y) = nullptr;
  void (*add)(const float* a, const float* b, int64_t count, float* y) = nullptr;
};

void RunElementwise(const void* opaque, const StepState& state, Worker& worker) {
  const ElementwiseArgs& args = *static_cast<const ElementwiseArgs*>(opaque);
  const int64_t pieces = (args.y.width + kPieceColumns - 1) / kPieceColumns;
  const Share share = ShareOf(NumRows(args.y.rows, state) * pieces, worker);
  for (int64_t piece = share.begin; piece < share.end;) {
    // All pieces of the share that lie in this row at once.
    const int64_t r = piece / pieces;
    const int64_t end = std::min(share.end, (r + 1) * pieces);
    const int64_t column = piece % pieces * kPieceColumns;
    const int64_t last = std::min(args.y.width, (end - r * pieces) * kPieceColumns);
    const float* b = args.b.data != nullptr ? args.b.Row(r) + column : nullptr;
    if (args.add != nullptr) {
      args.add(args.a.Row(r) + column, b, last - column, args.y.Row(r) + column);
    } else {
      args.activate(args.a.Row(r) + column, b, last - column, args.y.Row(r) + column);
    }
    piece = end;
  }
}

}  // namespace

Result<BoundCall> BindLayerNorm(const OpRecord& op, BindContext& context,
                                const RowKernels& kernels) {
  return BindNorm(op, context, kernels.layer_norm);
}

Result<BoundCall> BindRmsNorm(const OpRecord& op, BindContext& context, const RowKernels& kernels) {
  return BindNorm(op, context, kernels.rms_norm);
}

Result<BoundCall> BindRope(const OpRecord& op, BindContext& context, const RowKernels& kernels) {
  const RopeParams params = op.params.As<RopeParams>();
  RopeArgs args = {.q = context.Resolve(op.inputs[0]),
                   .k = context.Resolve(op.inputs[1]),
                   .table_rows = context.program().weight(op.weights[0]).rows,
                   .params = params,
                   .run = params.interleaved ? kernels.rope_pairs : kernels.rope_halves};
  SPRY_ASSIGN_OR_RETURN(args.table, context.LoadFloats(op.weights[0]));
  return BoundCall{.op = op.id, .run = RunRope, .args = context.Keep(args)};
}

Result<BoundCall> BindActivation(const OpRecord& op, BindContext& context,
                                 const RowKernels& kernels) {
  const Activation activation = op.params.As<ActivationParams>().activation;
  const ElementwiseArgs args = {.a = context.Resolve(op.inputs[0]),
                                .y = context.Resolve(op.outputs[0]),
                                .activate = kernels.activate[static_cast<int>(activation)]};
  return BoundCall{.op = op.id, .run = RunElementwise, .args = context.Keep(args)};
}

Result<BoundCall> BindGatedActivation(const OpRecord& op, BindContext& context,
                                      const RowKernels& kernels) {
  const Activation activation = op.params.As<ActivationParams>().activation;
  const Tensor& x = op.inputs[0];
  const int64_t width = x.width / 2;
  const ElementwiseArgs args = {.a = context.Resolve(x.Columns(0, width)),
                                .b = context.Resolve(x.Columns(width, width)),
                                .y = context.Resolve(op.outputs[0]),
                                .activate = kernels.activate[static_cast<int>(activation)]};
  return BoundCall{.op = op.id, .run = RunElementwise, .args = context.Keep(args)};
}

Result<BoundCall> BindAdd(const OpRecord& op, BindContext& context, const RowKernels& kernels) {
  const ElementwiseArgs args = {.a = context.Resolve(op.inputs[0]),
                                .b = context.Resolve(op.inputs[1]),
                                .y = context.Resolve(op.outputs[0]),
                                .add = kernels.add};
  return BoundCall{.op = op.id, .run = RunElementwise, .args = context.Keep(args)};
}

}  // namespace spry
