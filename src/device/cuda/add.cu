// add (ops/add.h): a thread an element.
#include "device/cuda/element.cuh"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;

struct AddArgs {
  Matrix a;
  Matrix b;
  Matrix y;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) AddKernel(AddArgs args, StepState state) {
  const int32_t r = static_cast<int32_t>(blockIdx.y);
  if (r >= NumRows(args.y.rows, state)) return;
  const int64_t column = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (column >= args.y.width) return;
  const T* a = reinterpret_cast<const T*>(args.a.data) + r * args.a.stride;
  const T* b = reinterpret_cast<const T*>(args.b.data) + r * args.b.stride;
  T* y = reinterpret_cast<T*>(args.y.data) + r * args.y.stride;
  y[column] = FromFloat<T>(ToFloat(a[column]) + ToFloat(b[column]));
}

template <typename T>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const AddArgs& add = ArgsAs<AddArgs>(args);
  const int32_t rows = context.shape.Of(add.y.rows);
  if (rows == 0) return;
  const dim3 grid(CeilDiv(add.y.width, kThreads), rows);
  AddKernel<T><<<grid, kThreads, 0, context.stream>>>(add, state);
}

}  // namespace

Result<BoundLaunch> BindAdd(const OpRecord& op, BindContext& context) {
  const AddArgs args{context.Resolve(op.inputs[0]), context.Resolve(op.inputs[1]),
                     context.Resolve(op.outputs[0])};
  CHECK(args.a.dtype == args.y.dtype && args.b.dtype == args.y.dtype);
  const LaunchFn launch =
      ForDType(args.y.dtype, []<typename T>(ElementOf<T>) -> LaunchFn { return Launch<T>; });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace spry::cuda
