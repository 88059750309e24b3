#include "device/cpu/simd/attention.h"
#include "device/cpu/simd/kv_tiles.h"
#include "ops/attention/attention.h"

namespace spry {
namespace {

struct WriteKvArgs {
  const AttentionKernels* kernels = nullptr;
  Matrix k, v;
  KvTiles layout;
  int kind = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  int32_t max_blocks_per_row = 0;
  std::byte* cache = nullptr;
};

// By (token, kv head); no two of a step share a lane or a row.
void RunWriteKv(const void* opaque, const StepState& state, Worker& worker) {
  const WriteKvArgs& args = *static_cast<const WriteKvArgs*>(opaque);
  const KvTiles& layout = args.layout;
  const Share share = ShareOf(state.header->num_tokens * args.kv_heads, worker);
  for (int64_t item = share.begin; item < share.end; ++item) {
    const int64_t t = item / args.kv_heads;
    const int64_t head = item % args.kv_heads;
    if (state.token_rows[t] < 0) continue;
    const int32_t row = state.rows[state.token_rows[t]].row;
    const int32_t position = state.positions[t];
    const int32_t block =
        state.block_tables[int64_t{row} * args.max_blocks_per_row + position / layout.block_size()];
    const int slot = position % layout.block_size();
    const int lane = slot % layout.lanes();
    args.kernels->write_key[args.kind](args.k.Row(t) + head * args.head_dim, args.head_dim, lane,
                                       args.cache + layout.KeyTile(block, head, slot - lane));
    args.kernels->write_value[args.kind](args.v.Row(t) + head * args.v_head_dim, args.v_head_dim,
                                         lane,
                                         args.cache + layout.ValueTile(block, head, slot - lane));
  }
}

}  // namespace

Result<BoundCall> BindWriteKv(const OpRecord& op, BindContext& context,
                              const AttentionKernels& kernels) {
  const LayerIdx index = op.params.As<WriteKvParams>().layer;
  const KvLayer& layer = context.program().kv_layers[index.value()];
  const WriteKvArgs args = {.kernels = &kernels,
                            .k = context.Resolve(op.inputs[0]),
                            .v = context.Resolve(op.inputs[1]),
                            .layout = KvTiles(layer, context.limits().block_size, kernels.lanes),
                            .kind = static_cast<int>(KvKindOf(layer.dtype)),
                            .kv_heads = layer.num_kv_heads,
                            .head_dim = layer.head_dim,
                            .v_head_dim = layer.v_head_dim,
                            .max_blocks_per_row = context.limits().max_blocks_per_row,
                            .cache = context.kv_layer(index)};
  return BoundCall{.op = op.id, .run = RunWriteKv, .args = context.Keep(args)};
}

}  // namespace spry
