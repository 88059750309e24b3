#include "ops/attention/attention.h"

namespace spry {

Tensor Attention(Tracer& tracer, const Tensor& q, const Tensor& k, const Tensor& v,
                 AttentionParams params, const AttentionWeights& weights) {
  DimBinder dims(tracer, "attention");
  dims.Bind("H*D", q.width, "q");
  dims.Bind("H*D", int64_t{params.num_heads} * params.head_dim, "heads x head_dim");
  dims.Bind("Hkv*D", k.width, "k");
  dims.Bind("Hkv*D", int64_t{params.num_kv_heads} * params.head_dim, "kv heads x head_dim");
  dims.Bind("Hkv*Dv", v.width, "v");
  dims.Bind("Hkv*Dv", int64_t{params.num_kv_heads} * params.v_head_dim, "kv heads x v_head_dim");
  dims.Bind("H mod Hkv", params.num_heads % params.num_kv_heads, "heads by kv heads");
  dims.Bind("H mod Hkv", 0, "a whole number of query heads per kv head");
  OpRecord op{.id = OpId::kAttention, .inputs = {q}};
  for (const std::optional<WeightHandle>* weight : {&weights.alibi_slopes, &weights.sinks}) {
    if (!weight->has_value()) continue;
    op.weights.Add(tracer.AddWeight({&**weight, 1}));
    dims.Bind("H", params.num_heads, "heads");
    dims.Bind("H", tracer.weight(op.weights[op.weights.size() - 1]).rows, (*weight)->name);
  }
  params.has_alibi = weights.alibi_slopes.has_value();
  params.has_sinks = weights.sinks.has_value();
  params.layer = tracer.AddKvLayer({.num_kv_heads = params.num_kv_heads,
                                    .head_dim = params.head_dim,
                                    .v_head_dim = params.v_head_dim,
                                    .dtype = tracer.options().kv});
  tracer.Emit({.id = OpId::kWriteKv,
               .inputs = {k, v},
               .params = OpParams::Of(WriteKvParams{params.layer})});
  const Tensor out =
      tracer.NewBuffer("attention", q.rows, int64_t{params.num_heads} * params.v_head_dim, q.dtype);
  op.outputs.Add(out);
  op.params = OpParams::Of(params);
  tracer.Emit(op);
  return out;
}

}  // namespace spry
