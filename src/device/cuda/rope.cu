// rope (ops/rope.h): in place, a thread a run of pairs of one head.
#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/rope.cuh"
#include "ops/attention/attention.h"
#include "ops/rope.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 64;

struct RopeArgs {
  Matrix q;
  Matrix k;
  const float* table = nullptr;
  RopeParams params;
};

// Positions and their angles are there before the projection has ended (overlap.cuh).
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    RopeKernel(const __grid_constant__ RopeArgs args, const __grid_constant__ StepState state) {
  LetNextStart();
  const RopeParams& params = args.params;
  const auto t = static_cast<int32_t>(blockIdx.x);
  const auto item = static_cast<int32_t>(blockIdx.y * kThreads + threadIdx.x);
  const int32_t half = params.rotary_dim / 2;
  const int32_t head = item / (half / kCount);
  const int32_t i = item % (half / kCount) * kCount;
  const bool works = t < state.header->num_tokens && head < params.num_heads + params.num_kv_heads;
  Run<float, kCount> cosines = {};
  Run<float, kCount> sines = {};
  if (works) {
    const float* angles = args.table + int64_t{state.positions[t]} * params.rotary_dim + i;
    cosines = *reinterpret_cast<const Run<float, kCount>*>(angles);
    sines = *reinterpret_cast<const Run<float, kCount>*>(angles + half);
  }
  AwaitPrevious();
  if (!works) return;
  const bool is_key = head >= params.num_heads;
  const Matrix& heads = is_key ? args.k : args.q;
  T* first = reinterpret_cast<T*>(heads.data) + t * heads.stride +
             (is_key ? head - params.num_heads : head) * params.head_dim +
             (params.interleaved ? 2 * i : i);
  T* second = first + (params.interleaved ? 1 : half);
  auto firsts = *reinterpret_cast<const Run<T, kCount>*>(first);
  auto seconds = *reinterpret_cast<const Run<T, kCount>*>(second);
  Rotate(firsts, seconds, cosines, sines);
  *reinterpret_cast<Run<T, kCount>*>(first) = firsts;
  *reinterpret_cast<Run<T, kCount>*>(second) = seconds;
}

template <typename T, int kCount>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const RopeArgs& rope = ArgsAs<RopeArgs>(args);
  const int32_t heads = rope.params.num_heads + rope.params.num_kv_heads;
  const int32_t items = heads * (rope.params.rotary_dim / 2 / kCount);
  LaunchOverlapped(
      context,
      {.blocks = dim3(context.shape.tokens, CeilDiv(items, kThreads)), .threads = kThreads},
      RopeKernel<T, kCount>, rope, state);
}

}  // namespace

Result<BoundLaunch> BindRope(const OpRecord& op, BindContext& context) {
  const RopeArgs args{.q = context.Resolve(op.inputs[0]),
                      .k = context.Resolve(op.inputs[1]),
                      .table = context.Floats(op.weights[0]),
                      .params = op.params.As<RopeParams>()};
  CHECK(args.q.dtype == args.k.dtype);
  const LaunchFn launch = ForDType(args.q.dtype, [&args]<typename T>(ElementOf<T>) -> LaunchFn {
    constexpr int kCount = kLongRun<T>;
    const RopeParams& params = args.params;
    const bool runs = !params.interleaved && params.rotary_dim / 2 % kCount == 0 &&
                      params.head_dim % kCount == 0 && HasLongRuns<T>(args.q) &&
                      HasLongRuns<T>(args.k);
    return runs ? Launch<T, kCount> : Launch<T, 1>;
  });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

Result<BoundLaunch> BindFoldedRope(const OpRecord& attention, BindContext& context) {
  return BindRope({.id = OpId::kRope,
                   .inputs = {attention.inputs[0], attention.inputs[1]},
                   .weights = {attention.weights[attention.weights.size() - 1]},
                   .params = OpParams::Of(attention.params.As<AttentionParams>().rope)},
                  context);
}

}  // namespace spry::cuda
