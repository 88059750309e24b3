#include "ops/activation.h"

#include "device/cpu/reference/apply_activation.h"
#include "device/cpu/reference/kernels.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix x, y;
  Activation activation = Activation::kNone;
};

void RunActivation(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const Share share = ShareOf(NumRows(args.x.rows, state), worker);
  for (int64_t r = share.begin; r < share.end; ++r) {
    const float* x = args.x.Row(r);
    float* y = args.y.Row(r);
    for (int64_t i = 0; i < args.y.width; ++i) y[i] = ApplyActivation(args.activation, x[i]);
  }
}

void RunGatedActivation(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const Share share = ShareOf(NumRows(args.x.rows, state), worker);
  for (int64_t r = share.begin; r < share.end; ++r) {
    const float* gate = args.x.Row(r);
    const float* up = gate + args.y.width;
    float* y = args.y.Row(r);
    for (int64_t i = 0; i < args.y.width; ++i) {
      y[i] = ApplyActivation(args.activation, gate[i]) * up[i];
    }
  }
}

Args Resolve(const OpRecord& op, const BindContext& context) {
  return {.x = context.Resolve(op.inputs[0]),
          .y = context.Resolve(op.outputs[0]),
          .activation = op.params.As<ActivationParams>().activation};
}

}  // namespace

Result<BoundCall> BindActivation(const OpRecord& op, BindContext& context) {
  return BoundCall{.op = op.id, .run = RunActivation, .args = context.Keep(Resolve(op, context))};
}

Result<BoundCall> BindGatedActivation(const OpRecord& op, BindContext& context) {
  return BoundCall{
      .op = op.id, .run = RunGatedActivation, .args = context.Keep(Resolve(op, context))};
}

}  // namespace spry::reference
