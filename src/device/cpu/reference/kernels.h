// The binders of the reference kernels: plain loops over f32, one op a file, written to be read.
// They define the bits: where another kernel or device claims to be bit-equal, it is to these. Each
// file states the order of its sums and where a multiply and an add are one rounding (fmaf).
#pragma once

#include "device/cpu/kernel.h"

namespace spry::reference {

Result<BoundCall> BindEmbed(const OpRecord& op, BindContext& context);
Result<BoundCall> BindLayerNorm(const OpRecord& op, BindContext& context);
Result<BoundCall> BindRmsNorm(const OpRecord& op, BindContext& context);
Result<BoundCall> BindLinear(const OpRecord& op, BindContext& context);
Result<BoundCall> BindRope(const OpRecord& op, BindContext& context);
Result<BoundCall> BindWriteKv(const OpRecord& op, BindContext& context);
Result<BoundCall> BindAttention(const OpRecord& op, BindContext& context);
Result<BoundCall> BindActivation(const OpRecord& op, BindContext& context);
Result<BoundCall> BindGatedActivation(const OpRecord& op, BindContext& context);
Result<BoundCall> BindAdd(const OpRecord& op, BindContext& context);
Result<BoundCall> BindGatherSamples(const OpRecord& op, BindContext& context);
Result<BoundCall> BindSample(const OpRecord& op, BindContext& context);

}  // namespace spry::reference
