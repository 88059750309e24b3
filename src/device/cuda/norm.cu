// layer_norm and rms_norm (ops/norm.h): a block a row. Sums run over 16 interleaved lanes, each in
// ascending order, then a tree, as on the CPU.
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "ops/norm.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanes = 16;
constexpr unsigned kLaneMask = 0xffffu;

struct NormArgs {
  Matrix x;
  Matrix y;
  const float* weight = nullptr;
  const float* bias = nullptr;  // layer_norm only
  float epsilon = 0.0f;
};

// Sums i < width by the first 16 threads, term(i, sum) adding one; every thread gets the sum.
template <typename Term>
__device__ float LaneSum(int64_t width, const Term& term) {
  __shared__ float total;
  if (threadIdx.x < kLanes) {
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < width; i += kLanes) sum = term(i, sum);
    sum = FoldLanes<kLanes>(sum, kLaneMask);
    if (threadIdx.x == 0) total = sum;
  }
  __syncthreads();
  const float sum = total;
  __syncthreads();
  return sum;
}

template <typename T, bool kLayerNorm>
__global__ void __launch_bounds__(kThreads) NormKernel(NormArgs args, StepState state) {
  const int32_t r = static_cast<int32_t>(blockIdx.x);
  if (r >= NumRows(args.x.rows, state)) return;
  const int64_t width = args.x.width;
  const T* x = reinterpret_cast<const T*>(args.x.data) + r * args.x.stride;
  T* y = reinterpret_cast<T*>(args.y.data) + r * args.y.stride;
  float mean = 0.0f;
  if constexpr (kLayerNorm) {
    mean = LaneSum(width, [&](int64_t i, float sum) { return sum + ToFloat(x[i]); }) /
           static_cast<float>(width);
  }
  const float squares = LaneSum(width, [&](int64_t i, float sum) {
    const float centred = ToFloat(x[i]) - mean;
    return fmaf(centred, centred, sum);
  });
  const float inverse = 1.0f / sqrtf(squares / static_cast<float>(width) + args.epsilon);
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    const float normal = (ToFloat(x[i]) - mean) * inverse;
    const float value =
        kLayerNorm ? fmaf(normal, args.weight[i], args.bias[i]) : normal * args.weight[i];
    y[i] = FromFloat<T>(value);
  }
}

template <typename T, bool kLayerNorm>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const NormArgs& norm = ArgsAs<NormArgs>(args);
  const int32_t rows = context.shape.Of(norm.x.rows);
  if (rows == 0) return;
  NormKernel<T, kLayerNorm><<<rows, kThreads, 0, context.stream>>>(norm, state);
}

template <bool kLayerNorm>
Result<BoundLaunch> Bind(const OpRecord& op, BindContext& context) {
  NormArgs args{.x = context.Resolve(op.inputs[0]),
                .y = context.Resolve(op.outputs[0]),
                .weight = context.Floats(op.weights[0]),
                .epsilon = op.params.As<NormParams>().epsilon};
  if (kLayerNorm) args.bias = context.Floats(op.weights[1]);
  CHECK(args.x.dtype == args.y.dtype);
  const LaunchFn launch = ForDType(
      args.x.dtype, []<typename T>(ElementOf<T>) -> LaunchFn { return Launch<T, kLayerNorm>; });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace

Result<BoundLaunch> BindLayerNorm(const OpRecord& op, BindContext& context) {
  return Bind<true>(op, context);
}

Result<BoundLaunch> BindRmsNorm(const OpRecord& op, BindContext& context) {
  return Bind<false>(op, context);
}

}  // namespace spry::cuda
