// The sample op on an instruction set's passes over logits. Scans and plain draws split the
// vocabulary over the workers; rows with filters, masked stop ids or log-probabilities are a
// worker's own. Picks and log-probabilities are the reference kernel's, bit for bit.
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/simd/sample_kernels.h"

namespace spry {

// `kernels` must outlive what is bound.
Result<BoundCall> BindSample(const OpRecord& op, BindContext& context,
                             const SampleKernels& kernels);

}  // namespace spry
