// gather_samples (ops/sampling.h): copies the rows whose logits are wanted.
#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;

struct GatherArgs {
  Matrix x;
  Matrix y;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    GatherKernel(View<T> x, View<T> y, int64_t width, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t l = static_cast<int32_t>(blockIdx.x);
  if (l >= state.header->num_samples) return;
  const T* from = x.Row(state.sample_tokens[l]);
  T* to = y.Row(l);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) to[i] = from[i];
}

template <typename T>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  // In order, the one linear that reads these rows takes them from where they are.
  if (context.shape.samples == 0 || context.shape.in_order) return;
  const GatherArgs& gather = ArgsAs<GatherArgs>(args);
  LaunchOverlapped(context, {.blocks = dim3(context.shape.samples), .threads = kThreads},
                   GatherKernel<T>, ViewOf<T>(gather.x), ViewOf<T>(gather.y), gather.y.width,
                   state);
}

}  // namespace

Result<BoundLaunch> BindGatherSamples(const OpRecord& op, BindContext& context) {
  const GatherArgs args{context.Resolve(op.inputs[0]), context.Resolve(op.outputs[0])};
  CHECK(args.x.dtype == args.y.dtype);
  const LaunchFn launch =
      ForDType(args.x.dtype, []<typename T>(ElementOf<T>) -> LaunchFn { return Launch<T>; });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace spry::cuda
