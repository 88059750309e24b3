#include "ops/embed.h"

namespace spry {
namespace {

void CheckRoom(Tracer& tracer, WeightId positions, const EmbedParams& params) {
  const WeightRecord& table = tracer.weight(positions);
  const int64_t longest = table.rows - params.position_offset;
  if (tracer.options().max_length <= longest) return;
  tracer.Fail(InvalidArgument("embed: " + table.name() + " has room for " +
                              std::to_string(longest) + " positions but max_model_len is " +
                              std::to_string(tracer.options().max_length)));
}

}  // namespace

Tensor Embed(Tracer& tracer, const WeightHandle& table) {
  const WeightId weight = tracer.AddWeight({&table, 1});
  const Tensor x = tracer.NewBuffer("embedding", RowDim::kTokens, tracer.weight(weight).columns,
                                    tracer.options().activation);
  tracer.Emit({.id = OpId::kEmbed,
               .outputs = {x},
               .weights = {weight},
               .params = OpParams::Of(EmbedParams{})});
  return x;
}

Tensor Embed(Tracer& tracer, const WeightHandle& table, const WeightHandle& positions,
             const EmbedParams& params) {
  const WeightId weight = tracer.AddWeight({&table, 1});
  const WeightId position_weight = tracer.AddWeight({&positions, 1});
  const int64_t width = tracer.weight(weight).columns;
  DimBinder dims(tracer, "embed");
  dims.Bind("E", width, table.name);
  dims.Bind("E", tracer.weight(position_weight).columns, positions.name);
  CheckRoom(tracer, position_weight, params);
  const Tensor x =
      tracer.NewBuffer("embedding", RowDim::kTokens, width, tracer.options().activation);
  tracer.Emit({.id = OpId::kEmbed,
               .outputs = {x},
               .weights = {weight, position_weight},
               .params = OpParams::Of(params)});
  return x;
}

Tensor EmbedPositions(Tracer& tracer, const WeightHandle& positions, EmbedParams params) {
  const WeightId weight = tracer.AddWeight({&positions, 1});
  CheckRoom(tracer, weight, params);
  params.positions_only = true;
  const Tensor x = tracer.NewBuffer("positions", RowDim::kTokens, tracer.weight(weight).columns,
                                    tracer.options().activation);
  tracer.Emit(
      {.id = OpId::kEmbed, .outputs = {x}, .weights = {weight}, .params = OpParams::Of(params)});
  return x;
}

}  // namespace spry
