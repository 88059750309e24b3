// embed (ops/embed.h): a block copies one token's row.
#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/weight_tiles.h"
#include "ops/embed.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;

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
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    float value = 0.0f;
    if (live) {
      value = ToFloat(table[WeightOffset(args.table, row, i)]);
      if (positions != nullptr) {
        value += ToFloat(positions[WeightOffset(args.positions, position, i)]);
      }
    }
    out[i] = FromFloat<T>(value);
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
