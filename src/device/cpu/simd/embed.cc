#include <algorithm>

#include "device/cpu/simd/row_ops.h"
#include "ops/embed.h"

namespace spry {
namespace {

struct EmbedTable {
  HostTensor tensor;
  int64_t row_bytes = 0;
  void (*dequantize)(const std::byte* row, int64_t count, float* y) = nullptr;
  void (*round)(float* x, int64_t count) = nullptr;  // null: nothing to round

  void Read(int64_t row, int64_t width, float* out) const {
    CHECK(row >= 0 && row < tensor.shape[0]);  // ids and lengths are checked where requests come in
    dequantize(tensor.data.data() + row * row_bytes, width, out);
    if (round != nullptr) round(out, width);
  }
};

struct EmbedArgs {
  Matrix x;
  EmbedTable table;  // of tokens, or of positions where there are only those
  bool positions_only = false;
  bool has_positions = false;
  EmbedTable positions;
  int32_t position_offset = 0;
  void (*add)(const float* a, const float* b, int64_t count, float* y) = nullptr;
};

void RunEmbed(const void* opaque, const StepState& state, Worker& worker) {
  const EmbedArgs& args = *static_cast<const EmbedArgs*>(opaque);
  float* position = reinterpret_cast<float*>(worker.scratch().data());
  const int64_t width = args.x.width;
  const Share share = ShareOf(state.header->num_tokens, worker);
  for (int64_t t = share.begin; t < share.end; ++t) {
    float* x = args.x.Row(t);
    if (state.token_rows[t] < 0) {
      std::fill_n(x, width, 0.0f);
      continue;
    }
    const int64_t place = int64_t{state.positions[t]} + args.position_offset;
    args.table.Read(args.positions_only ? place : state.token_ids[t], width, x);
    if (!args.has_positions) continue;
    args.positions.Read(place, width, position);
    args.add(x, position, width, x);
  }
}

Result<EmbedTable> LoadTable(WeightId id, BindContext& context, const RowKernels& kernels) {
  const WeightRecord& record = context.program().weight(id);
  const WeightHandle& part = record.parts.front();
  if (record.parts.size() != 1 || part.shape.rank() != 2) {
    return Unimplemented("embed: the table " + part.name + " must be one matrix");
  }
  SPRY_ASSIGN_OR_RETURN(HostTensor tensor, context.LoadRaw(part));
  const DType dtype = tensor.dtype;
  const DType compute = context.program().compute;
  const bool exact = IsQuantized(dtype) || dtype == compute;
  return EmbedTable{.tensor = std::move(tensor),
                    .row_bytes = RowBytes(dtype, record.columns),
                    .dequantize = kernels.dequantize[static_cast<int>(dtype)],
                    .round = exact ? nullptr : kernels.round[static_cast<int>(compute)]};
}

}  // namespace

Result<BoundCall> BindEmbed(const OpRecord& op, BindContext& context, const RowKernels& kernels) {
  const EmbedParams params = op.params.As<EmbedParams>();
  EmbedArgs args = {.x = context.Resolve(op.outputs[0]),
                    .positions_only = params.positions_only,
                    .has_positions = op.weights.size() > 1,
                    .position_offset = params.position_offset,
                    .add = kernels.add};
  CHECK(args.x.width * static_cast<int64_t>(sizeof(float)) <= kWorkerScratchBytes);
  SPRY_ASSIGN_OR_RETURN(args.table, LoadTable(op.weights[0], context, kernels));
  if (args.has_positions) {
    SPRY_ASSIGN_OR_RETURN(args.positions, LoadTable(op.weights[1], context, kernels));
  }
  return BoundCall{.op = op.id, .run = RunEmbed, .args = context.Keep(std::move(args))};
}

}  // namespace spry
