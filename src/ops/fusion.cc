#include "ops/fusion.h"

#include <algorithm>
#include <vector>

#include "ops/activation.h"
#include "ops/attention/attention.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace spry {
namespace {

// How many ops read any part of each buffer.
std::vector<int> CountReaders(const Program& program) {
  std::vector<int> readers(program.buffers.size());
  for (const OpRecord& op : program.ops) {
    for (const Tensor& input : op.inputs) ++readers[input.buffer.value()];
  }
  return readers;
}

// Folds `op` into the linear right before it, if that is all it needs.
bool FoldInto(OpRecord& linear, const OpRecord& op, const std::vector<int>& readers) {
  if (linear.id != OpId::kLinear) return false;
  const Tensor& product = linear.outputs[0];
  if (readers[product.buffer.value()] != 1) return false;
  LinearParams params = linear.params.As<LinearParams>();
  // y = act(...) + residual, y = act(...) * ...: nothing may follow.
  if (params.has_residual || params.gated) return false;
  if (op.id == OpId::kActivation && op.inputs[0] == product &&
      params.activation == Activation::kNone) {
    params.activation = op.params.As<ActivationParams>().activation;
  } else if (op.id == OpId::kAdd && (op.inputs[0] == product || op.inputs[1] == product)) {
    params.has_residual = true;
    linear.inputs.Add(op.inputs[0] == product ? op.inputs[1] : op.inputs[0]);
  } else {
    return false;
  }
  linear.params = OpParams::Of(params);
  linear.outputs[0] = op.outputs[0];
  return true;
}

// Makes `linear` do the norm right before it, if nothing else reads what the norm writes.
bool FoldNorm(const OpRecord& norm, OpRecord& linear, const std::vector<int>& readers) {
  if (norm.id != OpId::kLayerNorm && norm.id != OpId::kRmsNorm) return false;
  if (linear.id != OpId::kLinear || linear.inputs[0] != norm.outputs[0]) return false;
  if (readers[norm.outputs[0].buffer.value()] != 1) return false;
  LinearParams params = linear.params.As<LinearParams>();
  params.norm = norm.id == OpId::kLayerNorm ? NormKind::kLayer : NormKind::kRms;
  params.norm_epsilon = norm.params.As<NormParams>().epsilon;
  linear.params = OpParams::Of(params);
  linear.inputs[0] = norm.inputs[0];
  linear.outputs.Add(norm.outputs[0]);
  for (const WeightId weight : norm.weights) linear.weights.Add(weight);
  return true;
}

// Folds a gated activation into the linear right before it, whose two parts are gate and up.
bool FoldGate(const Program& program, OpRecord& linear, const OpRecord& op,
              const std::vector<int>& readers) {
  if (linear.id != OpId::kLinear || op.id != OpId::kGatedActivation) return false;
  const Tensor& product = linear.outputs[0];
  if (op.inputs[0] != product || readers[product.buffer.value()] != 1) return false;
  LinearParams params = linear.params.As<LinearParams>();
  if (params.norm != NormKind::kNone || params.activation != Activation::kNone) return false;
  const auto& parts = program.weight(linear.weights[0]).parts;
  if (parts.size() != 2 || parts[0].shape[0] != parts[1].shape[0]) return false;
  params.activation = op.params.As<ActivationParams>().activation;
  params.gated = true;
  linear.params = OpParams::Of(params);
  linear.outputs[0] = op.outputs[0];
  return true;
}

bool FoldWriteKv(const OpRecord& write_kv, OpRecord& attention) {
  if (write_kv.id != OpId::kWriteKv || attention.id != OpId::kAttention) return false;
  for (const Tensor& input : write_kv.inputs) attention.inputs.Add(input);
  return true;
}

// Folds a rope of q and k into the attention that has them both, if nothing else reads them.
bool FoldRope(const OpRecord& rope, OpRecord& attention, const std::vector<int>& readers) {
  if (rope.id != OpId::kRope || attention.id != OpId::kAttention || attention.inputs.size() != 3) {
    return false;
  }
  const auto reads = [](const OpRecord& op, BufferId buffer) {
    return static_cast<int>(std::ranges::count(op.inputs, buffer, &Tensor::buffer));
  };
  for (int i = 0; i < 2; ++i) {
    const BufferId buffer = rope.inputs[i].buffer;
    if (rope.inputs[i] != attention.inputs[i] ||
        readers[buffer.value()] != reads(rope, buffer) + reads(attention, buffer)) {
      return false;
    }
  }
  AttentionParams params = attention.params.As<AttentionParams>();
  params.rope = rope.params.As<RopeParams>();
  attention.params = OpParams::Of(params);
  attention.weights.Add(rope.weights[0]);
  return true;
}

}  // namespace

void FuseOps(Program& program, const Fusions& fusions) {
  const std::vector<int> readers = CountReaders(program);
  std::vector<OpRecord> fused;
  for (OpRecord op : program.ops) {
    if (!fused.empty()) {
      OpRecord& last = fused.back();
      if (FoldInto(last, op, readers)) continue;
      if (fusions.gate_into_linear && FoldGate(program, last, op, readers)) continue;
      if ((fusions.norm_into_linear && FoldNorm(last, op, readers)) ||
          (fusions.write_kv_into_attention && FoldWriteKv(last, op))) {
        fused.pop_back();
      }
      if (fusions.rope_into_attention && !fused.empty() && FoldRope(fused.back(), op, readers)) {
        fused.pop_back();
      }
    }
    fused.push_back(op);
  }
  program.ops = std::move(fused);
}

}  // namespace spry
