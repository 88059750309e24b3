#include "device/cpu/reference/kernels.h"
#include "device/cpu/reference/kv_layout.h"

namespace spry {

KernelTable ReferenceKernels() {
  KernelTable table = {};
  const auto set = [&table](OpId id, BindFn bind) { table[static_cast<int>(id)] = bind; };
  set(OpId::kEmbed, reference::BindEmbed);
  set(OpId::kLayerNorm, reference::BindLayerNorm);
  set(OpId::kRmsNorm, reference::BindRmsNorm);
  set(OpId::kLinear, reference::BindLinear);
  set(OpId::kRope, reference::BindRope);
  set(OpId::kActivation, reference::BindActivation);
  set(OpId::kGatedActivation, reference::BindGatedActivation);
  set(OpId::kAdd, reference::BindAdd);
  set(OpId::kGatherSamples, reference::BindGatherSamples);
  set(OpId::kSample, reference::BindSample);
  return table;
}

CpuAttentionBackend ReferenceAttention() {
  return {.facts = {.name = "cpu-reference",
                    .description = "plain loops, serves everything",
                    .activations = {DType::kF32},
                    .kvs = {DType::kF32, DType::kBF16, DType::kF16},
                    .window = true,
                    .soft_cap = true,
                    .alibi = true,
                    .sinks = true},
          .bytes_per_block =
              [](const KvLayer& layer, int block_size) {
                return reference::KvLayout(layer, block_size).bytes_per_block();
              },
          .bind_write_kv = reference::BindWriteKv,
          .bind_attention = reference::BindAttention};
}

}  // namespace spry
