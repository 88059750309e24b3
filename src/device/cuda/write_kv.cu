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

// Of a row of k or v, kCount neighbouring elements at a time: of one head.
template <int kCount, typename T, typename Kv>
__device__ void WriteRow(const T* row, int32_t width, int32_t head_dim, Kv* first,
                         int64_t next_head) {
  for (int32_t i = static_cast<int32_t>(threadIdx.x) * kCount; i < width; i += kThreads * kCount) {
    const auto from = *reinterpret_cast<const Run<T, kCount>*>(row + i);
    Run<Kv, kCount> to;
#pragma unroll
    for (int e = 0; e < kCount; ++e) to.values[e] = FromFloat<Kv>(ToFloat(from.values[e]));
    *reinterpret_cast<Run<Kv, kCount>*>(first + i / head_dim * next_head + i % head_dim) = to;
  }
}

template <typename T, typename Kv, int kCount>
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
  WriteRow<kCount>(k.Row(t), cache.num_kv_heads * cache.head_dim, cache.head_dim,
                   cache.Key<Kv>(block, offset, 0), int64_t{cache.block_size} * cache.head_dim);
  WriteRow<kCount>(v.Row(t), cache.num_kv_heads * cache.v_head_dim, cache.v_head_dim,
                   cache.Value<Kv>(block, offset, 0), int64_t{cache.block_size} * cache.v_head_dim);
}

template <typename T, typename Kv, int kCount>
void LaunchWriteKv(const void* args, const StepState& state, const LaunchContext& context) {
  const WriteKvArgs& write = ArgsAs<WriteKvArgs>(args);
  LaunchOverlapped(context, {.blocks = dim3(context.shape.tokens), .threads = kThreads},
                   WriteKvKernel<T, Kv, kCount>, write, ViewOf<T>(write.k), ViewOf<T>(write.v),
                   state);
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
  const LaunchFn launch = ForDType(args.k.dtype, [&]<typename T>(ElementOf<T>) -> LaunchFn {
    constexpr int kRun = kLongRun<T>;
    const bool runs = HasLongRuns<T>(args.k) && HasLongRuns<T>(args.v) &&
                      layer.head_dim % kRun == 0 && layer.v_head_dim % kRun == 0;
    return ForDType(layer.dtype, [runs]<typename Kv>(ElementOf<Kv>) -> LaunchFn {
      return runs ? LaunchWriteKv<T, Kv, kRun> : LaunchWriteKv<T, Kv, 1>;
    });
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
