// activation and gated_activation (ops/activation.h).
#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/packed_rows.cuh"
#include "ops/activation.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;

struct ActivationArgs {
  Matrix x;
  Matrix y;
  Activation activation = Activation::kNone;
  RowTaker taker;
};

// Gated: x holds the gates, then what they multiply. A thread makes a run of a row.
template <typename T, bool kGated, int kCount>
__global__ void __launch_bounds__(kThreads)
    ActivationKernel(const __grid_constant__ ActivationArgs args,
                     const __grid_constant__ InputPlace place,
                     const __grid_constant__ StepState state) {
  LetNextStart();
  const int32_t r = static_cast<int32_t>(blockIdx.y);
  const int64_t column = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kCount;
  const bool works = r < NumRows(args.y.rows, state) && column < args.y.width;
  AwaitPrevious();
  if (!works) return;
  using Values = Run<T, kCount>;
  const T* x = reinterpret_cast<const T*>(args.x.data) + r * args.x.stride + column;
  auto values = *reinterpret_cast<const Values*>(x);
  Values factors = {};
  if constexpr (kGated) factors = *reinterpret_cast<const Values*>(x + args.y.width);
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    float value = ApplyActivation(args.activation, ToFloat(values.values[e]));
    if constexpr (kGated) value *= ToFloat(factors.values[e]);
    values.values[e] = FromFloat<T>(value);
  }
  if constexpr (sizeof(Values) == sizeof(uint4) && sizeof(T) == 2) {
    place.Put(r, static_cast<int32_t>(column), *reinterpret_cast<const uint4*>(&values));
  } else {
    T* y = reinterpret_cast<T*>(args.y.data) + r * args.y.stride + column;
    *reinterpret_cast<Values*>(y) = values;
  }
}

template <typename T, bool kGated, int kCount>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const ActivationArgs& activation = ArgsAs<ActivationArgs>(args);
  const int32_t rows = context.shape.Of(activation.y.rows);
  if (rows == 0) return;
  const dim3 grid(CeilDiv(activation.y.width, kThreads * kCount), rows);
  LaunchOverlapped(context, {.blocks = grid, .threads = kThreads},
                   ActivationKernel<T, kGated, kCount>, activation,
                   PlaceOf(activation.taker, activation.y, rows, context), state);
}

template <bool kGated>
Result<BoundLaunch> Bind(const OpRecord& op, BindContext& context) {
  ActivationArgs args{context.Resolve(op.inputs[0]), context.Resolve(op.outputs[0]),
                      op.params.As<ActivationParams>().activation};
  CHECK(args.x.dtype == args.y.dtype);
  const LaunchFn launch = ForDType(args.x.dtype, [&]<typename T>(ElementOf<T>) -> LaunchFn {
    constexpr int kCount = kLongRun<T>;
    const bool runs = HasLongRuns<T>(args.x) && HasLongRuns<T>(args.y);
    if (runs && sizeof(T) == 2) args.taker = TakeRows(op, HandOver::kAlways, context);
    return runs ? Launch<T, kGated, kCount> : Launch<T, kGated, 1>;
  });
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
