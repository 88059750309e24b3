#include "ops/add.h"

#include "device/cpu/reference/kernels.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix a, b, y;
};

void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const Share share = ShareOf(NumRows(args.y.rows, state), worker);
  for (int64_t r = share.begin; r < share.end; ++r) {
    const float* a = args.a.Row(r);
    const float* b = args.b.Row(r);
    float* y = args.y.Row(r);
    for (int64_t i = 0; i < args.y.width; ++i) y[i] = a[i] + b[i];
  }
}

}  // namespace

Result<BoundCall> BindAdd(const OpRecord& op, BindContext& context) {
  const Args args{.a = context.Resolve(op.inputs[0]),
                  .b = context.Resolve(op.inputs[1]),
                  .y = context.Resolve(op.outputs[0])};
  return BoundCall{.op = op.id, .run = Run, .args = context.Keep(args)};
}

}  // namespace spry::reference
