#include <cstring>

#include "device/cpu/reference/kernels.h"
#include "ops/sampling.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix x, y;
};

void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const Share share = ShareOf(state.header->num_samples, worker);
  for (int64_t l = share.begin; l < share.end; ++l) {
    std::memcpy(args.y.Row(l), args.x.Row(state.sample_tokens[l]), args.y.width * sizeof(float));
  }
}

}  // namespace

Result<BoundCall> BindGatherSamples(const OpRecord& op, BindContext& context) {
  const Args args{.x = context.Resolve(op.inputs[0]), .y = context.Resolve(op.outputs[0])};
  return BoundCall{.op = op.id, .run = Run, .args = context.Keep(args)};
}

}  // namespace spry::reference
