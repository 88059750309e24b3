// Which kernels an instruction set has. Compiled for any machine: only the kernels themselves are
// not.
#include "device/cpu/kernel_sets.h"

#include "device/cpu/simd/attention.h"
#include "device/cpu/simd/linear.h"
#include "device/cpu/simd/linear_kernels.h"
#include "device/cpu/simd/row_ops.h"
#include "device/cpu/simd/sample.h"
#include "ops/attention/attention.h"

namespace spry {
namespace {

LinearKernels MakeAvx2Linear() {
  LinearKernels kernels;
  AddAvx2Linear(kernels);
  return kernels;
}

LinearKernels MakeAvx512Linear() {
  LinearKernels kernels = MakeAvx2Linear();
  AddAvx512Linear(kernels);
  if (__builtin_cpu_supports("avx512vnni")) AddAvx512VnniLinear(kernels);
  if (__builtin_cpu_supports("avx512bf16")) AddAvx512Bf16Linear(kernels);
  return kernels;
}

LinearKernels MakeAmxLinear() {
  LinearKernels kernels = MakeAvx512Linear();
  AddAmxLinear(kernels);
  return kernels;
}

Result<BoundCall> BindAvx2Linear(const OpRecord& op, BindContext& context) {
  static const LinearKernels kKernels = MakeAvx2Linear();
  return BindLinear(op, context, kKernels, Avx2RowKernels());
}

Result<BoundCall> BindAvx512Linear(const OpRecord& op, BindContext& context) {
  static const LinearKernels kKernels = MakeAvx512Linear();
  return BindLinear(op, context, kKernels, Avx512RowKernels());
}

Result<BoundCall> BindAmxLinear(const OpRecord& op, BindContext& context) {
  static const LinearKernels kKernels = MakeAmxLinear();
  return BindLinear(op, context, kKernels, Avx512RowKernels());
}

Result<BoundCall> BindAvx2Sample(const OpRecord& op, BindContext& context) {
  return BindSample(op, context, Avx2SampleKernels());
}

Result<BoundCall> BindAvx512Sample(const OpRecord& op, BindContext& context) {
  return BindSample(op, context, Avx512SampleKernels());
}

// A tile of keys lies in one block, so small blocks are served with shorter vectors.
const AttentionKernels& Avx512AttentionFor(const BindContext& context) {
  const bool fits = context.limits().block_size >= Avx512AttentionKernels().lanes;
  return fits ? Avx512AttentionKernels() : Avx2AttentionKernels();
}

const AttentionKernels& AmxAttentionFor(const BindContext& context, LayerIdx index) {
  const KvLayer& layer = context.program().kv_layers[index.value()];
  const bool fits = layer.dtype == DType::kBF16 && layer.head_dim % 32 == 0 &&
                    layer.v_head_dim % 16 == 0 &&
                    context.limits().block_size % AmxAttentionKernels().lanes == 0;
  return fits ? AmxAttentionKernels() : Avx512AttentionFor(context);
}

}  // namespace

void UseAvx2Kernels(KernelTable& table) {
  table[static_cast<int>(OpId::kLinear)] = BindAvx2Linear;
  table[static_cast<int>(OpId::kSample)] = BindAvx2Sample;
  UseRowKernels<Avx2RowKernels>(table);
}

void UseAvx512Kernels(KernelTable& table) {
  table[static_cast<int>(OpId::kLinear)] = BindAvx512Linear;
  table[static_cast<int>(OpId::kSample)] = BindAvx512Sample;
  UseRowKernels<Avx512RowKernels>(table);
}

CpuAttentionBackend Avx2Attention() {
  CpuAttentionBackend backend = MakeCpuAttention();
  backend.bind_write_kv = [](const OpRecord& op, BindContext& context) {
    return BindWriteKv(op, context, Avx2AttentionKernels());
  };
  backend.bind_attention = [](const OpRecord& op, BindContext& context) {
    return BindAttention(op, context, Avx2AttentionKernels());
  };
  return backend;
}

CpuAttentionBackend Avx512Attention() {
  CpuAttentionBackend backend = MakeCpuAttention();
  backend.bind_write_kv = [](const OpRecord& op, BindContext& context) {
    return BindWriteKv(op, context, Avx512AttentionFor(context));
  };
  backend.bind_attention = [](const OpRecord& op, BindContext& context) {
    return BindAttention(op, context, Avx512AttentionFor(context));
  };
  return backend;
}

void UseAmxKernels(KernelTable& table) { table[static_cast<int>(OpId::kLinear)] = BindAmxLinear; }

CpuAttentionBackend AmxAttention() {
  CpuAttentionBackend backend = MakeCpuAttention();
  backend.facts.description = "tiles of keys and values in bf16, vector kernels for other caches";
  backend.bind_write_kv = [](const OpRecord& op, BindContext& context) {
    return BindWriteKv(op, context, AmxAttentionFor(context, op.params.As<WriteKvParams>().layer));
  };
  backend.bind_attention = [](const OpRecord& op, BindContext& context) {
    return BindAttention(op, context,
                         AmxAttentionFor(context, op.params.As<AttentionParams>().layer));
  };
  return backend;
}

}  // namespace spry
