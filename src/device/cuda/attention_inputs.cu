#include "device/cuda/attention_inputs.cuh"

#include <bit>
#include <string>

#include "ops/attention/attention.h"

namespace spry::cuda {

Result<AttentionInputs> BindAttentionInputs(const OpRecord& op, BindContext& context,
                                            const char* backend) {
  const AttentionParams params = op.params.As<AttentionParams>();
  const KvLayer& layer = context.program().kv_layers[params.layer.value()];
  AttentionInputs inputs{.q = context.Resolve(op.inputs[0]),
                         .out = context.Resolve(op.outputs[0]),
                         .cache = CacheOf(layer, params.layer, context),
                         .scale = params.scale,
                         .group = params.num_heads / params.num_kv_heads};
  inputs.block_shift = std::countr_zero(static_cast<uint32_t>(inputs.cache.block_size));
  if (op.inputs.size() == 3) {
    inputs.k = context.Resolve(op.inputs[1]);
    inputs.v = context.Resolve(op.inputs[2]);
    SPRY_ASSIGN_OR_RETURN(inputs.write_kv, BindFoldedWriteKv(op, context));
  }
  if (params.rope.rotary_dim > 0) {
    SPRY_ASSIGN_OR_RETURN(inputs.rope, BindFoldedRope(op, context));
  }
  if (inputs.q.dtype != layer.dtype || params.head_dim != params.v_head_dim) {
    return Unimplemented(std::string("attention backend ") + backend +
                         ": activations and KV cache must be of one type, keys and values of one "
                         "head size; use cuda-reference");
  }
  return inputs;
}

}  // namespace spry::cuda
