// write_kv (ops/attention/attention.h): a block a token.
#include "device/cuda/element.cuh"
#include "device/cuda/kv_cache.cuh"
#include "device/cuda/overlap.cuh"
#include "ops/attention/attention.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 128;

struct WriteKvArgs {
  Matrix k;
  Matrix v;
  KvCache cache;
};

template <typename T, typename Kv>
__global__ void __launch_bounds__(kThreads)
    WriteKvKernel(WriteKvArgs args, View<T> k, View<T> v, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t t = static_cast<int32_t>(blockIdx.x);
  if (t >= state.header->num_tokens) return;
  const int32_t r = state.token_rows[t];
  if (r < 0) return;
  const KvCache& cache = args.cache;
  const int32_t position = state.positions[t];
  const int32_t offset = position % cache.block_size;
  const int32_t block = state.block_tables[int64_t{state.rows[r].row} * cache.max_blocks_per_row +
                                           position / cache.block_size];
  const int32_t k_width = cache.num_kv_heads * cache.head_dim;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < k_width; i += kThreads) {
    const int32_t head = i / cache.head_dim;
    cache.Key<Kv>(block, offset, head)[i % cache.head_dim] = FromFloat<Kv>(ToFloat(k.Row(t)[i]));
  }
  const int32_t v_width = cache.num_kv_heads * cache.v_head_dim;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < v_width; i += kThreads) {
    const int32_t head = i / cache.v_head_dim;
    cache.Value<Kv>(block, offset, head)[i % cache.v_head_dim] =
        FromFloat<Kv>(ToFloat(v.Row(t)[i]));
  }
}

template <typename T, typename Kv>
void LaunchWriteKv(const void* args, const StepState& state, const LaunchContext& context) {
  const WriteKvArgs& write = ArgsAs<WriteKvArgs>(args);
  LaunchOverlapped(context, {.blocks = dim3(context.shape.tokens), .threads = kThreads},
                   WriteKvKernel<T, Kv>, write, ViewOf<T>(write.k), ViewOf<T>(write.v), state);
}

}  // namespace

KvCache CacheOf(const KvLayer& layer, LayerIdx index, const BindContext& context) {
  return {.data = context.kv_layer(index),
          .block_size = context.limits().block_size,
          .max_blocks_per_row = context.limits().max_blocks_per_row,
          .num_kv_heads = layer.num_kv_heads,
          .head_dim = static_cast<int32_t>(layer.head_dim),
          .v_head_dim = static_cast<int32_t>(layer.v_head_dim)};
}

int64_t KvBytesPerBlock(const KvLayer& layer, int block_size) {
  return RowBytes(layer.dtype,
                  layer.num_kv_heads * block_size * (layer.head_dim + layer.v_head_dim));
}

Result<BoundLaunch> BindWriteKv(const OpRecord& op, BindContext& context) {
  const LayerIdx index = op.params.As<WriteKvParams>().layer;
  const KvLayer& layer = context.program().kv_layers[index.value()];
  const WriteKvArgs args{.k = context.Resolve(op.inputs[0]),
                         .v = context.Resolve(op.inputs[1]),
                         .cache = CacheOf(layer, index, context)};
  CHECK(args.k.dtype == args.v.dtype);
  const LaunchFn launch = ForDType(args.k.dtype, [&layer]<typename T>(ElementOf<T>) -> LaunchFn {
    return ForDType(layer.dtype,
                    []<typename Kv>(ElementOf<Kv>) -> LaunchFn { return LaunchWriteKv<T, Kv>; });
  });
  return BoundLaunch{op.id, launch, context.Keep(args)};
}

Result<BoundLaunch> BindFoldedWriteKv(const OpRecord& attention, BindContext& context) {
  CHECK(attention.inputs.size() == 3);
  const WriteKvParams params{attention.params.As<AttentionParams>().layer};
  return BindWriteKv({.id = OpId::kWriteKv,
                      .inputs = {attention.inputs[1], attention.inputs[2]},
                      .params = OpParams::Of(params)},
                     context);
}

}  // namespace spry::cuda
