// The ops that treat each row alone, on an instruction set's row kernels: norms, rope, activations,
// add, gather_samples, embed.
#pragma once

#include "device/cpu/kernel.h"
#include "device/cpu/simd/row_kernels.h"

namespace spry {

// `kernels` must outlive what is bound.
Result<BoundCall> BindLayerNorm(const OpRecord& op, BindContext& context,
                                const RowKernels& kernels);
Result<BoundCall> BindRmsNorm(const OpRecord& op, BindContext& context, const RowKernels& kernels);
Result<BoundCall> BindRope(const OpRecord& op, BindContext& context, const RowKernels& kernels);
Result<BoundCall> BindActivation(const OpRecord& op, BindContext& context,
                                 const RowKernels& kernels);
Result<BoundCall> BindGatedActivation(const OpRecord& op, BindContext& context,
                                      const RowKernels& kernels);
Result<BoundCall> BindAdd(const OpRecord& op, BindContext& context, const RowKernels& kernels);
Result<BoundCall> BindEmbed(const OpRecord& op, BindContext& context, const RowKernels& kernels);

// Puts all of them, bound to what kGet returns, into the table.
template <const RowKernels& (*kGet)()>
void UseRowKernels(KernelTable& table) {
  const auto set = [&table]<auto kBind>(OpId id) {
    table[static_cast<int>(id)] = [](const OpRecord& op, BindContext& context) {
      return kBind(op, context, kGet());
    };
  };
  set.template operator()<BindLayerNorm>(OpId::kLayerNorm);
  set.template operator()<BindRmsNorm>(OpId::kRmsNorm);
  set.template operator()<BindRope>(OpId::kRope);
  set.template operator()<BindActivation>(OpId::kActivation);
  set.template operator()<BindGatedActivation>(OpId::kGatedActivation);
  set.template operator()<BindAdd>(OpId::kAdd);
  set.template operator()<BindEmbed>(OpId::kEmbed);
}

}  // namespace spry
