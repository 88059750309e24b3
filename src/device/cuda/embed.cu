// embed (ops/embed.h): a block copies one token's row.
#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/weight_tiles.h"
#include "ops/embed.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // elements of a thread on their way

struct EmbedArgs {
  Matrix x;
  WeightMatrix table;      // of tokens, or of positions where there are only those
  WeightMatrix positions;  // data null: none
  EmbedParams params;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    EmbedKernel(EmbedArgs args, View<T> x, StepState state) {
  AwaitPrevious();
  LetNextStart();  // not before stage has ended (overlap.cuh)
  const int32_t t = static_cast<int32_t>(blockIdx.x);
  const int64_t width = args.x.width;
  T* out = x.Row(t);
  const bool live = state.token_rows[t] >= 0;  // not in the padding of the bucket either
  const T* table = reinterpret_cast<const T*>(args.table.data);
  const T* positions = reinterpret_cast<const T*>(args.positions.data);
  const int64_t position = state.positions[t] + args.params.position_offset;
  const int64_t row = args.params.positions_only ? position : state.token_ids[t];
  for (int64_t begin = threadIdx.x; begin < width; begin += kAtOnce * kThreads) {
    const auto column = [&](int k) { return min(begin + k * kThreads, width - 1); };
    float values[kAtOnce] = {};
    if (live) {
      // No branch between loads, so that all are on their way before one is waited for.
      T found[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) found[k] = table[WeightOffset(args.table, row, column(k))];
      T placed[kAtOnce] = {};
      if (positions != nullptr) {
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          placed[k] = positions[WeightOffset(args.positions, position, column(k))];
        }
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        values[k] = ToFloat(found[k]);
        if (positions != nullptr) values[k] += ToFloat(placed[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t i = begin + k * kThreads;
      if (i < width) out[i] = FromFloat<T>(values[k]);
    }
  }
}

template <typename T>
void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const EmbedArgs& embed = ArgsAs<EmbedArgs>(args);
  LaunchOverlapped(context, {.blocks = dim3(context.shape.tokens), .threads = kThreads},
                   EmbedKernel<T>, embed, ViewOf<T>(embed.x), state);
}

}  // namespace

Result<BoundLaunch> BindEmbed(const OpRecord& op, BindContext& context) {
  EmbedArgs args{.x = context.Resolve(op.outputs[0]),
                 .table = context.Weight(op.weights[0]),
                 .params = op.params.As<EmbedParams>()};
  if (op.weights.size() > 1) args.positions = context.Weight(op.weights[1]);
  CHECK(args.table.dtype == args.x.dtype);  // both are the compute dtype
  const LaunchFn launch =
      ForDType(args.x.dtype, []<typename T>(ElementOf<T>) -> LaunchFn { return Launch<T>; });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

}  // namespace spry::cuda
