// rope (ops/rope.h): in place, a block a token, a thread a pair of one head.
#include "device/cuda/element.cuh"
#include "ops/rope.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;

struct RopeArgs {
  Matrix q;
  Matrix k;
  const float* table = nullptr;
  RopeParams params;
};

template <typename T>
__device__ void RotateHeads(T* heads, int32_t num_heads, const float* cosines,
                            const RopeParams& params) {
  const int32_t half = params.rotary_dim / 2;
  for (int32_t item = static_cast<int32_t>(threadIdx.x); item < num_heads * half;
       item += kThreads) {
    const int32_t i = item % half;
    T* head = heads + int64_t{item / half} * params.head_dim;
    T* first = params.interleaved ? head + 2 * i : head + i;
    T* second = params.interleaved ? first + 1 : first + half;
    const float cosine = cosines[i];
    const float sine = cosines[half + i];
    const float a = ToFloat(*first);
    const float b = ToFloat(*second);
    *first = FromFloat<T>(fmaf(a, cosine, -(b * sine)));
    *second = FromFloat<T>(fmaf(b, cosine, a * sine));
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RopeKernel(RopeArgs args, View<T> q, View<T> k, StepState state) {
  const int32_t t = static_cast<int32_t>(blockIdx.x);
  if (t >= state.header->num_tokens) return;
  const float* cosines = args.table + int64_t{state.positions[t]} * args.params.rotary_dim;
  RotateHeads(q.Row(t), args.params.num_heads, cosines, args.params);
  RotateHeads(k.Row(t), args.params.num_kv_heads, cosines, args.params);
}

template <typename T>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const RopeArgs& rope = ArgsAs<RopeArgs>(args);
  RopeKernel<T><<<context.shape.tokens, kThreads, 0, context.stream>>>(rope, ViewOf<T>(rope.q),
                                                                       ViewOf<T>(rope.k), state);
}

}  // namespace

Result<BoundLaunch> BindRope(const OpRecord& op, BindContext& context) {
  const RopeArgs args{.q = context.Resolve(op.inputs[0]),
                      .k = context.Resolve(op.inputs[1]),
                      .table = context.Floats(op.weights[0]),
                      .params = op.params.As<RopeParams>()};
  CHECK(args.q.dtype == args.k.dtype);
  const LaunchFn launch =
      ForDType(args.q.dtype, []<typename T>(ElementOf<T>) -> LaunchFn { return Launch<T>; });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace spry::cuda
