// The linear op on packed weights: binding (repacks the weight, chooses its kernels) and running
// (prepares the activations, splits panels and rows over the workers).
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/simd/linear_kernels.h"
#include "device/cpu/simd/row_kernels.h"

namespace spry {

// The kernels must outlive what is bound.
Result<BoundCall> BindLinear(const OpRecord& op, BindContext& context, const LinearKernels& kernels,
                             const RowKernels& row_kernels);

}  // namespace spry
