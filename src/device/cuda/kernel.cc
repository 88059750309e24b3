#include "device/cuda/kernel.h"

#include "device/cuda/memory_plan.h"

namespace spry::cuda {

BindContext::BindContext(const Program& program, const StepLimits& limits, const MemoryPlan& plan,
                         const Regions& regions, const StepRings& rings)
    : program_(program),
      limits_(limits),
      plan_(plan),
      regions_(regions),
      rings_(rings),
      handed_(program.buffers.size()) {
  std::byte* at = regions_.kv;
  for (const int64_t bytes : plan_.kv_layer_bytes) {
    kv_layers_.push_back(at);
    at += bytes * limits_.num_blocks;
  }
}

Matrix BindContext::Resolve(const Tensor& tensor) const {
  const int32_t buffer = tensor.buffer.value();
  return {.data = regions_.arena + plan_.buffers.offset_bytes[buffer] +
                  RowBytes(tensor.dtype, tensor.offset),
          .dtype = tensor.dtype,
          .rows = tensor.rows,
          .width = tensor.width,
          .stride = tensor.stride};
}

WeightMatrix BindContext::Weight(WeightId id) const {
  const WeightPlacement& placement = plan_.weights[id.value()];
  const WeightRecord& record = program_.weight(id);
  return {.data = regions_.weights + placement.offset,
          .dtype = placement.dtype,
          .rows = record.rows,
          .columns = record.columns,
          .tiled = placement.tiled};
}

const float* BindContext::Floats(WeightId id) const {
  const WeightMatrix weight = Weight(id);
  CHECK(weight.dtype == DType::kF32);
  return reinterpret_cast<const float*>(weight.data);
}

std::byte* BindContext::packed_rows(int region) const {
  if (regions_.packed_rows == nullptr) return nullptr;
  return regions_.packed_rows + region * plan_.packed_row_bytes;
}

KernelTable MakeKernelTable(const CudaAttentionBackend& attention) {
  KernelTable table = {};
  const auto bind = [&table](OpId id, BindFn fn) { table[static_cast<int>(id)] = fn; };
  bind(OpId::kStage, BindStage);
  bind(OpId::kEmbed, BindEmbed);
  bind(OpId::kLayerNorm, BindLayerNorm);
  bind(OpId::kRmsNorm, BindRmsNorm);
  bind(OpId::kLinear, BindLinear);
  bind(OpId::kRope, BindRope);
  bind(OpId::kWriteKv, attention.bind_write_kv);
  bind(OpId::kAttention, attention.bind_attention);
  bind(OpId::kActivation, BindActivation);
  bind(OpId::kGatedActivation, BindGatedActivation);
  bind(OpId::kAdd, BindAdd);
  bind(OpId::kGatherSamples, BindGatherSamples);
  bind(OpId::kSample, BindSample);
  bind(OpId::kAdvance, BindAdvance);
  return table;
}

}  // namespace spry::cuda
