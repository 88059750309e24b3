#include "ops/activation.h"

#include "device/cpu/reference/kernels.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix x, y;
};

// The activation is a template parameter so that the compiler sees one formula per loop.
template <Activation kActivation>
void RunActivation(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const Share share = ShareOf(NumRows(args.x.rows, state), worker);
  for (int64_t r = share.begin; r < share.end; ++r) {
    const float* x = args.x.Row(r);
    float* y = args.y.Row(r);
    for (int64_t i = 0; i < args.y.width; ++i) y[i] = ApplyActivation(kActivation, x[i]);
  }
}

template <Activation kActivation>
void RunGatedActivation(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const Share share = ShareOf(NumRows(args.x.rows, state), worker);
  for (int64_t r = share.begin; r < share.end; ++r) {
    const float* gate = args.x.Row(r);
    const float* up = gate + args.y.width;
    float* y = args.y.Row(r);
    for (int64_t i = 0; i < args.y.width; ++i) {
      y[i] = ApplyActivation(kActivation, gate[i]) * up[i];
    }
  }
}

struct Variants {
  KernelFn none, relu, silu;

  KernelFn operator[](Activation activation) const {
    switch (activation) {
      case Activation::kNone: return none;
      case Activation::kRelu: return relu;
      case Activation::kSilu: return silu;
    }
    return none;
  }
};

constexpr Variants kActivations = {RunActivation<Activation::kNone>,
                                   RunActivation<Activation::kRelu>,
                                   RunActivation<Activation::kSilu>};
constexpr Variants kGatedActivations = {RunGatedActivation<Activation::kNone>,
                                        RunGatedActivation<Activation::kRelu>,
                                        RunGatedActivation<Activation::kSilu>};

BoundCall Bind(const OpRecord& op, BindContext& context, const Variants& variants) {
  const Args args{.x = context.Resolve(op.inputs[0]), .y = context.Resolve(op.outputs[0])};
  return {.op = op.id,
          .run = variants[op.params.As<ActivationParams>().activation],
          .args = context.Keep(args)};
}

}  // namespace

Result<BoundCall> BindActivation(const OpRecord& op, BindContext& context) {
  return Bind(op, context, kActivations);
}

Result<BoundCall> BindGatedActivation(const OpRecord& op, BindContext& context) {
  return Bind(op, context, kGatedActivations);
}

}  // namespace spry::reference
