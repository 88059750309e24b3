#include "device/cpu/simd/linear.h"

#include <algorithm>
#include <vector>

#include "ops/linear.h"

namespace spry {
namespace {

// One of the stacked parts of a weight.
struct PackedPart {
  WeightForm form = WeightForm::kF32;
  const std::byte* panels = nullptr;
  int64_t panel_bytes = 0;
  int64_t num_panels = 0;
  int64_t first_column = 0;  // of y
  int64_t num_columns = 0;
};

struct LinearArgs {
  const LinearKernels* kernels = nullptr;
  std::vector<PackedPart> parts;
  int64_t weight_bytes = 0;  // of all parts
  int64_t k = 0;
  Matrix x;
  Matrix y;
  Matrix residual;  // no data: none
  const float* bias = nullptr;
  Activation activation = Activation::kNone;
  // What the parts' forms need; 0: not needed. In prepared memory a row's rounded form follows its
  // quantised one.
  int64_t quantized_bytes = 0;
  int64_t rounded_bytes = 0;
  std::byte* const* scratch = nullptr;  // of prepared rows

  int64_t prepared_bytes() const { return quantized_bytes + rounded_bytes; }
};

// Up to this many elements each worker prepares all rows for itself, which costs less than a
// barrier.
constexpr int64_t kOwnElements = 8192;

void PrepareRows(const LinearArgs& args, Share rows, std::byte* prepared) {
  for (int64_t r = rows.begin; r < rows.end; ++r, prepared += args.prepared_bytes()) {
    const float* x = args.x.Row(r);
    if (args.quantized_bytes != 0) args.kernels->quantize(x, args.k, prepared);
    if (args.rounded_bytes != 0) args.kernels->round(x, args.k, prepared + args.quantized_bytes);
  }
}

// What one worker computes: some rows of y, and of those its part of the panels.
struct Slice {
  Share rows;
  int member = 0;  // of the workers that share these rows
  int members = 1;
};

// With rows enough, workers split rows: each then prepares and reads only its own, and nothing
// passes between cores. Else, or within a group of workers, they split panels.
constexpr int64_t kGroupRows = 32;

Slice SliceOf(int64_t rows, const Worker& worker) {
  int groups = static_cast<int>(std::clamp<int64_t>(rows / kGroupRows, 1, worker.count()));
  while (worker.count() % groups != 0) --groups;
  const int members = worker.count() / groups;
  const int group = worker.index() / members;
  return {.rows = {rows * group / groups, rows * (group + 1) / groups},
          .member = worker.index() % members,
          .members = members};
}

// The prepared form of the slice's first row.
const std::byte* PrepareActivations(const LinearArgs& args, const Slice& slice, Worker& worker) {
  if (args.prepared_bytes() == 0) return nullptr;
  const int64_t rows = slice.rows.end - slice.rows.begin;
  const bool fits = rows * args.prepared_bytes() <= static_cast<int64_t>(worker.scratch().size());
  if (fits && (slice.members == 1 || rows * args.k <= kOwnElements)) {
    PrepareRows(args, slice.rows, worker.scratch().data());
    return worker.scratch().data();
  }
  std::byte* prepared = *args.scratch + slice.rows.begin * args.prepared_bytes();
  const Share own = {.begin = rows * slice.member / slice.members,
                     .end = rows * (slice.member + 1) / slice.members};
  PrepareRows(args, {slice.rows.begin + own.begin, slice.rows.begin + own.end},
              prepared + own.begin * args.prepared_bytes());
  if (slice.members > 1) worker.Barrier();
  return prepared;
}

// A worker's rows of x in the form that a part wants.
struct Activations {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // bytes
};

Activations ActivationsFor(const LinearArgs& args, WeightForm form, int64_t first_row,
                           const std::byte* prepared) {
  if (IsQuantizedForm(form)) return {prepared, args.prepared_bytes()};
  if (form == WeightForm::kBF16) return {prepared + args.quantized_bytes, args.prepared_bytes()};
  return {reinterpret_cast<const std::byte*>(args.x.Row(first_row)),
          args.x.stride * int64_t{sizeof(float)}};
}

// Some panels of a part times some rows. Panel by panel, so that the weights stay in the first
// cache while the rows pass.
void RunPanels(const LinearArgs& args, const PackedPart& part, Share panels, Share rows,
               const std::byte* prepared) {
  const int form = static_cast<int>(part.form);
  const int64_t num_rows = rows.end - rows.begin;
  const int64_t tile_rows = args.kernels->tile_rows[form];
  const int64_t num_tiles = (num_rows + tile_rows - 1) / tile_rows;
  const Activations x = ActivationsFor(args, part.form, rows.begin, prepared);
  LinearTile tile = {.k = args.k,
                     .x_stride = x.stride,
                     .y_stride = args.y.stride,
                     .residual_stride = args.residual.stride,
                     .activation = args.activation};
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t column = part.first_column + panel * kPanelRows;
    tile.panel = part.panels + panel * part.panel_bytes;
    tile.columns = std::min<int64_t>(kPanelRows, part.num_columns - panel * kPanelRows);
    if (args.bias != nullptr) tile.bias = args.bias + column;
    for (int64_t i = 0; i < num_tiles; ++i) {
      // Rows are spread evenly over the tiles.
      const int64_t row = num_rows * i / num_tiles;
      const int64_t count = num_rows * (i + 1) / num_tiles - row;
      tile.x = x.data + row * x.stride;
      tile.y = args.y.Row(rows.begin + row) + column;
      if (args.residual.data != nullptr) {
        tile.residual = args.residual.Row(rows.begin + row) + column;
      }
      args.kernels->tiles[form][count - 1](tile);
    }
  }
}

void RunLinear(const void* kept, const StepState& state, Worker& worker) {
  const LinearArgs& args = *static_cast<const LinearArgs*>(kept);
  const int64_t rows = NumRows(args.x.rows, state);
  if (rows == 0) return;
  const Slice slice = SliceOf(rows, worker);
  const std::byte* prepared = PrepareActivations(args, slice, worker);
  // Members get the same share of the weight's bytes, to the nearest panel.
  const int64_t begin = args.weight_bytes * slice.member / slice.members;
  const int64_t end = args.weight_bytes * (slice.member + 1) / slice.members;
  int64_t before = 0;
  for (const PackedPart& part : args.parts) {
    const auto panel_at = [&](int64_t byte) {
      const int64_t nearest = (byte - before + part.panel_bytes / 2) / part.panel_bytes;
      return std::clamp<int64_t>(nearest, 0, part.num_panels);
    };
    RunPanels(args, part, {panel_at(begin), panel_at(end)}, slice.rows, prepared);
    before += part.num_panels * part.panel_bytes;
  }
}

struct PackJob {
  RawWeight weight;
  WeightForm form = WeightForm::kF32;
  std::byte* panels = nullptr;
};

void RunPack(const void* context, Worker& worker) {
  const PackJob& job = *static_cast<const PackJob*>(context);
  const int64_t panel_bytes = PanelBytes(job.form, job.weight.columns);
  const Share share = ShareOf(NumPanels(job.weight.rows), worker);
  for (int64_t panel = share.begin; panel < share.end; ++panel) {
    PackPanel(job.weight, job.form, panel, job.panels + panel * panel_bytes);
  }
}

// Reads, repacks and drops the checkpoint's tensor.
Status PackPart(const WeightHandle& handle, const PackedPart& part, int64_t columns,
                std::byte* panels, BindContext& context) {
  SPRY_ASSIGN_OR_RETURN(const HostTensor tensor, context.ReadPart(handle));
  const PackJob job = {.weight = {.dtype = tensor.dtype,
                                  .rows = part.num_columns,
                                  .columns = columns,
                                  .data = tensor.data.data()},
                       .form = part.form,
                       .panels = panels};
  context.pool().Run(RunPack, &job);
  return {};
}

Status PackWeight(const WeightRecord& record, BindContext& context, LinearArgs& args) {
  int64_t column = 0;
  for (const WeightHandle& handle : record.parts) {
    const WeightForm form = FormOf(handle.dtype, context.program().compute);
    const int64_t rows = handle.shape[0];
    args.parts.push_back({.form = form,
                          .panel_bytes = PanelBytes(form, record.columns),
                          .num_panels = NumPanels(rows),
                          .first_column = column,
                          .num_columns = rows});
    args.weight_bytes += args.parts.back().num_panels * args.parts.back().panel_bytes;
    column += rows;
    if (IsQuantizedForm(form)) args.quantized_bytes = QuantizedRowBytes(record.columns);
    if (form == WeightForm::kBF16) args.rounded_bytes = RoundedRowBytes(record.columns);
  }
  SPRY_ASSIGN_OR_RETURN(std::byte * at, context.AllocateWeights(args.weight_bytes));
  for (size_t i = 0; i < args.parts.size(); ++i) {
    PackedPart& part = args.parts[i];
    SPRY_RETURN_IF_ERROR(PackPart(record.parts[i], part, record.columns, at, context));
    part.panels = at;
    at += part.num_panels * part.panel_bytes;
  }
  return {};
}

}  // namespace

Result<BoundCall> BindLinear(const OpRecord& op, BindContext& context,
                             const LinearKernels& kernels) {
  const LinearParams params = op.params.As<LinearParams>();
  const WeightRecord& record = context.program().weight(op.weights[0]);
  LinearArgs args = {.kernels = &kernels,
                     .k = record.columns,
                     .x = context.Resolve(op.inputs[0]),
                     .y = context.Resolve(op.outputs[0]),
                     .activation = params.activation};
  if (params.has_residual) args.residual = context.Resolve(op.inputs[1]);
  if (params.has_bias) {
    SPRY_ASSIGN_OR_RETURN(args.bias, context.LoadFloats(op.weights[1]));
  }
  SPRY_RETURN_IF_ERROR(PackWeight(record, context, args));
  const int64_t prepared = MaxRows(args.x.rows, context.limits()) * args.prepared_bytes();
  if (prepared > 0) args.scratch = context.ShareScratch(prepared);
  return BoundCall{.op = op.id, .run = RunLinear, .args = context.Keep(std::move(args))};
}

}  // namespace spry
