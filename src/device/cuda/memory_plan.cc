#include "device/cuda/memory_plan.h"

#include <algorithm>
#include <map>
#include <string>

#include "device/cuda/weight_tiles.h"
#include "ops/attention/attention.h"
#include "ops/linear.h"

namespace spry::cuda {
namespace {

std::vector<bool> FindRopeTables(const Program& program) {
  std::vector<bool> tables(program.weights.size());
  for (const OpRecord& op : program.ops) {
    const bool folded =
        op.id == OpId::kAttention && op.params.As<AttentionParams>().rope.rotary_dim > 0;
    if (folded || op.id == OpId::kRope) tables[op.weights[op.weights.size() - 1].value()] = true;
  }
  return tables;
}

void PlaceWeights(const Program& program, MemoryPlan& plan) {
  const std::vector<bool> is_rope_table = FindRopeTables(program);
  std::map<std::string, int64_t> matrices;  // offset by the names of the parts
  for (size_t id = 0; id < program.weights.size(); ++id) {
    const WeightRecord& weight = program.weights[id];
    const bool as_floats = weight.columns == 1 || is_rope_table[id];
    WeightPlacement placement{.dtype = as_floats ? DType::kF32 : program.compute,
                              .offset = plan.weight_bytes};
    if (!as_floats) {
      std::string names;
      for (const WeightHandle& part : weight.parts) names += part.name + '\n';
      const auto [known, is_new] = matrices.emplace(names, placement.offset);
      placement.offset = known->second;
      placement.shared = !is_new;
    }
    placement.tiled = IsTiled(placement.dtype, weight.rows, weight.columns);
    if (!placement.shared) {
      plan.weight_bytes += AlignDevice(weight.rows * RowBytes(placement.dtype, weight.columns));
    }
    plan.weights.push_back(placement);
  }
}

bool IsGathered(const Program& program, const Tensor& tensor) {
  return std::ranges::any_of(program.ops, [&tensor](const OpRecord& op) {
    return op.id == OpId::kGatherSamples && op.outputs[0].buffer == tensor.buffer;
  });
}

LogitsPlan PlanLogits(const Program& program, const MemoryPlan& plan, bool warpgroups) {
  for (const OpRecord& op : program.ops) {
    if (op.id != OpId::kLinear || op.outputs[0].buffer != program.logits.buffer) continue;
    const bool tiled = plan.weights[op.weights[0].value()].tiled;
    const bool norms_apart =
        op.params.As<LinearParams>().norm != NormKind::kNone && op.inputs[0].width > kMaxNormWidth;
    return {.drawn_rows = tiled ? MostDrawnRows(op.inputs[0].width, warpgroups) : 0,
            .gathers = tiled && !norms_apart && IsGathered(program, op.inputs[0])};
  }
  return {};
}

// Room for the packed rows of any linear, and of two at once: a linear may make packed rows from
// packed rows.
int64_t PackedRowBytesOf(const Program& program, const StepLimits& limits, const MemoryPlan& plan,
                         bool warpgroups) {
  int64_t most = 0;
  for (const OpRecord& op : program.ops) {
    if (op.id != OpId::kLinear || !plan.weights[op.weights[0].value()].tiled) continue;
    const WeightRecord& weight = program.weight(op.weights[0]);
    const auto rows = static_cast<int32_t>(MaxRows(op.inputs[0].rows, limits));
    most = std::max(most, PackedRowBytes(weight.rows, weight.columns, rows, warpgroups));
    if (op.outputs[0].buffer != program.logits.buffer) continue;
    most = std::max(most, PackedLogitBytes(weight.columns, rows, warpgroups));
  }
  return AlignDevice(most);
}

}  // namespace

MemoryNeeds MemoryPlan::needs() const {
  return {.weights = weight_bytes,
          .activations = buffers.arena_bytes + 2 * packed_row_bytes,
          .step = state_bytes + best_draws_bytes + attention_bytes + ring_bytes + rule_image_bytes,
          .kv_per_block = kv_block_bytes};
}

MemoryPlan PlanMemory(const Program& program, const StepLimits& limits,
                      const CudaAttentionBackend& attention, bool warpgroups) {
  MemoryPlan plan;
  PlaceWeights(program, plan);
  plan.buffers = PlanBuffers(program, limits);
  plan.state_bytes = kCounterBytes + StepSlotBytes(limits) + StepStateBytes(limits);
  if (attention.scratch_bytes != nullptr) {
    plan.attention_bytes = attention.scratch_bytes(program, limits);
  }
  plan.logits = PlanLogits(program, plan, warpgroups);
  if (plan.logits.drawn_rows > 0) plan.best_draws_bytes = limits.max_samples * sizeof(uint64_t);
  plan.packed_row_bytes = PackedRowBytesOf(program, limits, plan, warpgroups);
  plan.ring_bytes =
      kCounterBytes + (StepSlotBytes(limits) + StepResultBytes(limits)) * limits.ring_size;
  plan.rule_image_bytes = limits.max_rule_slots * MakeRuleSlotLayout(limits.vocab_size).image_bytes;
  for (const KvLayer& layer : program.kv_layers) {
    plan.kv_layer_bytes.push_back(attention.bytes_per_block(layer, limits.block_size));
    plan.kv_block_bytes += plan.kv_layer_bytes.back();
  }
  return plan;
}

}  // namespace spry::cuda
