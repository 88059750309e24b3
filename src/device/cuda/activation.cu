// activation and gated_activation (ops/activation.h): a thread an element.
#include "device/cuda/element.cuh"
#include "ops/activation.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;

struct ActivationArgs {
  Matrix x;
  Matrix y;
  Activation activation = Activation::kNone;
};

// Gated: x holds the gates, then what they multiply.
template <typename T, bool kGated>
__global__ void __launch_bounds__(kThreads) ActivationKernel(ActivationArgs args, StepState state) {
  const int32_t r = static_cast<int32_t>(blockIdx.y);
  if (r >= NumRows(args.y.rows, state)) return;
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= args.y.width) return;
  const T* x = reinterpret_cast<const T*>(args.x.data) + r * args.x.stride;
  T* y = reinterpret_cast<T*>(args.y.data) + r * args.y.stride;
  float value = ApplyActivation(args.activation, ToFloat(x[column]));
  if constexpr (kGated) value *= ToFloat(x[args.y.width + column]);
  y[column] = FromFloat<T>(value);
}

template <typename T, bool kGated>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const ActivationArgs& activation = ArgsAs<ActivationArgs>(args);
  const int32_t rows = context.shape.Of(activation.y.rows);
  if (rows == 0) return;
  const dim3 grid(CeilDiv(activation.y.width, kThreads), rows);
  ActivationKernel<T, kGated><<<grid, kThreads, 0, context.stream>>>(activation, state);
}

template <bool kGated>
Result<BoundLaunch> Bind(const OpRecord& op, BindContext& context) {
  const ActivationArgs args{context.Resolve(op.inputs[0]), context.Resolve(op.outputs[0]),
                            op.params.As<ActivationParams>().activation};
  CHECK(args.x.dtype == args.y.dtype);
  const LaunchFn launch = ForDType(
      args.x.dtype, []<typename T>(ElementOf<T>) -> LaunchFn { return Launch<T, kGated>; });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace

Result<BoundLaunch> BindActivation(const OpRecord& op, BindContext& context) {
  return Bind<false>(op, context);
}

Result<BoundLaunch> BindGatedActivation(const OpRecord& op, BindContext& context) {
  return Bind<true>(op, context);
}

}  // namespace spry::cuda
