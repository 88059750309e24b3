#include "device/cpu/reference/kernels.h"
#include "device/cpu/reference/kv_layout.h"
#include "ops/attention/attention.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix k, v;
  KvLayout layout;
  int kv_heads = 0;
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  int32_t max_blocks_per_row = 0;
  std::byte* cache = nullptr;
};

template <typename Kv>
void Store(const float* from, int64_t count, std::byte* to) {
  auto* stored = reinterpret_cast<typename Kv::Stored*>(to);
  for (int64_t i = 0; i < count; ++i) stored[i] = Kv::Store(from[i]);
}

// By tokens; no two tokens of a step share a slot.
template <typename Kv>
void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const int block_size = args.layout.block_size();
  const Share share = ShareOf(state.header->num_tokens, worker);
  for (int64_t t = share.begin; t < share.end; ++t) {
    if (state.token_rows[t] < 0) continue;
    const int32_t row = state.rows[state.token_rows[t]].row;
    const int32_t position = state.positions[t];
    const int32_t* table = state.block_tables + int64_t{row} * args.max_blocks_per_row;
    const int32_t block = table[position / block_size];
    for (int head = 0; head < args.kv_heads; ++head) {
      const int slot = position % block_size;
      Store<Kv>(args.k.Row(t) + head * args.head_dim, args.head_dim,
                args.cache + args.layout.KeyOffset(block, head, slot));
      Store<Kv>(args.v.Row(t) + head * args.v_head_dim, args.v_head_dim,
                args.cache + args.layout.ValueOffset(block, head, slot));
    }
  }
}

}  // namespace

Result<BoundCall> BindWriteKv(const OpRecord& op, BindContext& context) {
  const LayerIdx layer = op.params.As<WriteKvParams>().layer;
  const KvLayer& facts = context.program().kv_layers[layer.value()];
  const Args args{.k = context.Resolve(op.inputs[0]),
                  .v = context.Resolve(op.inputs[1]),
                  .layout = KvLayout(facts, context.limits().block_size),
                  .kv_heads = facts.num_kv_heads,
                  .head_dim = facts.head_dim,
                  .v_head_dim = facts.v_head_dim,
                  .max_blocks_per_row = context.limits().max_blocks_per_row,
                  .cache = context.kv_layer(layer)};
  KernelFn run = Run<KvF32>;
  if (facts.dtype == DType::kBF16) run = Run<KvBf16>;
  if (facts.dtype == DType::kF16) run = Run<KvF16>;
  return BoundCall{.op = op.id, .run = run, .args = context.Keep(args)};
}

}  // namespace spry::reference
