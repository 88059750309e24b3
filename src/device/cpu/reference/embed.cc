#include <algorithm>

#include "device/cpu/reference/kernels.h"
#include "device/cpu/reference/rounding.h"
#include "ops/embed.h"
#include "tensor/dequantize.h"

namespace spry::reference {
namespace {

struct Table {
  HostTensor tensor;
  int64_t columns = 0;
  int64_t row_bytes = 0;
  DType rounding = DType::kF32;

  int64_t rows() const { return tensor.shape[0]; }
  void Read(int64_t row, float* out) const {
    CHECK(row >= 0 && row < rows());  // ids and lengths are checked where requests come in
    DequantizeRow(tensor.dtype, tensor.data.data() + row * row_bytes, columns, out);
    if (rounding == DType::kF32) return;
    for (int64_t i = 0; i < columns; ++i) out[i] = RoundTo(rounding, out[i]);
  }
};

struct Args {
  Matrix x;
  Table table;  // of tokens, or of positions where there are only those
  bool positions_only = false;
  bool has_positions = false;
  Table positions;
  int32_t position_offset = 0;
};

// By tokens. x = token row + position row, one add; or either row alone.
void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  float* position = reinterpret_cast<float*>(worker.scratch().data());
  const Share share = ShareOf(state.header->num_tokens, worker);
  for (int64_t t = share.begin; t < share.end; ++t) {
    float* x = args.x.Row(t);
    if (state.token_rows[t] < 0) {
      std::fill_n(x, args.x.width, 0.0f);
      continue;
    }
    const int64_t place = int64_t{state.positions[t]} + args.position_offset;
    args.table.Read(args.positions_only ? place : state.token_ids[t], x);
    if (!args.has_positions) continue;
    args.positions.Read(place, position);
    for (int64_t i = 0; i < args.x.width; ++i) x[i] += position[i];
  }
}

Result<Table> LoadTable(WeightId id, BindContext& context) {
  const WeightRecord& record = context.program().weight(id);
  const WeightHandle& part = record.parts.front();
  if (record.parts.size() != 1 || part.shape.rank() != 2) {
    return Unimplemented("embed: the table " + part.name + " must be one matrix");
  }
  SPRY_ASSIGN_OR_RETURN(HostTensor tensor, context.LoadRaw(part));
  const int64_t row_bytes = RowBytes(tensor.dtype, record.columns);
  const DType rounding = MatrixRounding(context.program(), tensor.dtype);
  return Table{std::move(tensor), record.columns, row_bytes, rounding};
}

}  // namespace

Result<BoundCall> BindEmbed(const OpRecord& op, BindContext& context) {
  const EmbedParams params = op.params.As<EmbedParams>();
  Args args{.x = context.Resolve(op.outputs[0]),
            .positions_only = params.positions_only,
            .has_positions = op.weights.size() > 1,
            .position_offset = params.position_offset};
  CHECK(args.x.width * static_cast<int64_t>(sizeof(float)) <= kWorkerScratchBytes);
  SPRY_ASSIGN_OR_RETURN(args.table, LoadTable(op.weights[0], context));
  if (args.has_positions) {
    SPRY_ASSIGN_OR_RETURN(args.positions, LoadTable(op.weights[1], context));
  }
  return BoundCall{.op = op.id, .run = Run, .args = context.Keep(std::move(args))};
}

}  // namespace spry::reference
