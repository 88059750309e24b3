// The cpu attention backend: binds write_kv and attention to an instruction set's kernels and
// spreads the lines of a step over the workers. Bit-equal to the reference backend, but for the
// layers that AMX serves.
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/simd/attention_kernels.h"

namespace spry {

// What the backend serves, whatever the instruction set; its binders are left to be set.
CpuAttentionBackend MakeCpuAttention();

// `kernels` must outlive what is bound.
Result<BoundCall> BindWriteKv(const OpRecord& op, BindContext& context,
                              const AttentionKernels& kernels);
Result<BoundCall> BindAttention(const OpRecord& op, BindContext& context,
                                const AttentionKernels& kernels);

KvKind KvKindOf(DType dtype);

}  // namespace spry
