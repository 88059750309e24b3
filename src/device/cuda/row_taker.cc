#include "device/cuda/row_taker.h"

#include "device/cuda/linear_mma.h"
#include "ops/linear.h"

namespace spry::cuda {
namespace {

// The only op that reads any part of a buffer; null: none does, or several do.
const OpRecord* OnlyReader(const Program& program, const Tensor& made) {
  const OpRecord* reader = nullptr;
  for (const OpRecord& op : program.ops) {
    for (const Tensor& input : op.inputs) {
      if (input.buffer != made.buffer) continue;
      if (reader != nullptr) return nullptr;
      reader = &op;
    }
  }
  return reader;
}

}  // namespace

int32_t RowTaker::Eights(int32_t rows, const LaunchContext& context) const {
  if (packed == nullptr) return 0;
  if (IsStreamed(outputs, depth, context.warpgroups)) {
    const int32_t eights = StreamEights(outputs, makes_floats, rows, context);
    if (eights > 0) return eights;
  }
  if (makes_floats) return 0;
  if (IsResident(outputs, depth, context.warpgroups) && TakesResident(depth, rows)) {
    return ResidentEights(rows);
  }
  return PipelinedEights(outputs, depth, rows, context);
}

RowTaker TakeRows(const OpRecord& maker, HandOver when, BindContext& context) {
  const bool warpgroups = context.packed_rows(0) != nullptr;
  const Tensor& made = maker.outputs[0];
  const OpRecord* user = OnlyReader(context.program(), made);
  if (!warpgroups || user == nullptr || user->id != OpId::kLinear || user->inputs[0] != made ||
      user->params.As<LinearParams>().norm != NormKind::kNone) {
    return {};
  }
  const WeightMatrix weight = context.Weight(user->weights[0]);
  const bool shares_depth =
      IsResident(weight.rows, weight.columns, warpgroups) && weight.columns > kResidentDepth;
  const bool others =
      when != HandOver::kWhereResident && (IsStreamed(weight.rows, weight.columns, warpgroups) ||
                                           IsPipelined(weight.rows, weight.columns, warpgroups));
  if (!weight.tiled || !(shares_depth || others)) return {};
  // A linear may make packed rows from packed rows: those are in region 0.
  std::byte* packed = context.packed_rows(maker.id == OpId::kLinear ? 1 : 0);
  context.Hand(made.buffer, {.packed = packed, .when = when});
  return {.packed = packed,
          .outputs = static_cast<int32_t>(weight.rows),
          .depth = static_cast<int32_t>(weight.columns),
          .makes_floats = user->outputs[0].dtype == DType::kF32};
}

}  // namespace spry::cuda
