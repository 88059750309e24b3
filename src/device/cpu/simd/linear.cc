#include "device/cpu/simd/linear.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "ops/linear.h"

namespace spry {
namespace {

// One of the stacked parts of a weight.
struct PackedPart {
  WeightForm form = WeightForm::kF32;
  const FormKernel* kernel = nullptr;
  int64_t row_offset = 0;  // in a prepared row, of the activations' form that the kernel wants
  float largest_weight = 0.0f;
  const std::byte* panels = nullptr;
  int64_t panel_bytes = 0;
  int64_t num_panels = 0;
  int64_t first_column = 0;  // of y
  int64_t num_columns = 0;
};

// A form of activations, and where it lies in a prepared row.
struct PreparedForm {
  RowForm form;
  int64_t offset = 0;
};

struct LinearArgs {
  std::vector<PackedPart> parts;
  int64_t weight_bytes = 0;  // of all parts
  int64_t num_units = 0;     // panels of all parts, numbered through; gated: of each part
  int64_t k = 0;
  Matrix x;
  Matrix y;
  Matrix residual;  // no data: none
  const float* bias = nullptr;
  Activation activation = Activation::kNone;
  // With it, the parts are gate and up, and y what it makes of their products.
  void (*gate)(const float* gate, const float* up, int64_t count, float* y) = nullptr;
  std::vector<PreparedForm> prepared;   // all that the parts want
  int64_t prepared_bytes = 0;           // of a row
  std::byte* const* scratch = nullptr;  // of prepared rows
  // How many chunks of units were claimed, and claimed in vain, in this call.
  std::shared_ptr<std::atomic<int64_t>> claims = std::make_shared<std::atomic<int64_t>>(0);
};

// Up to this many elements each worker prepares all rows for itself, which costs less than a
// barrier.
constexpr int64_t kOwnElements = 8192;

void PrepareRows(const LinearArgs& args, Share rows, std::byte* prepared) {
  for (int64_t r = rows.begin; r < rows.end; ++r, prepared += args.prepared_bytes) {
    for (const PreparedForm& form : args.prepared) {
      form.form.prepare(args.x.Row(r), args.k, prepared + form.offset);
    }
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

// A worker's memory: prepared rows, products to be gated, and what the kernels want.
constexpr int64_t kGateFloats = 16384;  // of gate, and as many of up
constexpr int64_t kGateRows = kGateFloats / kPanelRows;
constexpr int64_t kGateBytes = 2 * kGateFloats * sizeof(float);
constexpr int64_t kPreparedScratchBytes = kWorkerScratchBytes - kGateBytes - kLinearScratchBytes;

// The prepared form of the slice's first row.
const std::byte* PrepareActivations(const LinearArgs& args, const Slice& slice, Worker& worker) {
  if (args.prepared_bytes == 0) return nullptr;
  const int64_t rows = slice.rows.end - slice.rows.begin;
  const bool fits = rows * args.prepared_bytes <= kPreparedScratchBytes;
  if (fits && (slice.members == 1 || rows * args.k <= kOwnElements)) {
    PrepareRows(args, slice.rows, worker.scratch().data());
    return worker.scratch().data();
  }
  std::byte* prepared = *args.scratch + slice.rows.begin * args.prepared_bytes;
  const Share own = {.begin = rows * slice.member / slice.members,
                     .end = rows * (slice.member + 1) / slice.members};
  PrepareRows(args, {slice.rows.begin + own.begin, slice.rows.begin + own.end},
              prepared + own.begin * args.prepared_bytes);
  if (slice.members > 1) worker.Barrier();
  return prepared;
}

// Where a run of panels leaves its products: an element (row, column of the run) at
// data[row * stride + column].
struct Products {
  float* data = nullptr;
  int64_t stride = 0;
};

// Some panels of a part times some rows, of which the first is prepared at `prepared`.
void RunPanels(const LinearArgs& args, const PackedPart& part, Share panels, Share rows,
               const std::byte* prepared, const Products& y, Worker& worker) {
  const int64_t skipped = panels.begin * kPanelRows;
  const int64_t column = part.first_column + skipped;
  const bool as_is = part.kernel->rows.prepare == nullptr;
  const bool residual = args.residual.data != nullptr;
  part.kernel->multiply(
      {.first = {.panel = part.panels + panels.begin * part.panel_bytes,
                 .k = args.k,
                 .x = as_is ? reinterpret_cast<const std::byte*>(args.x.Row(rows.begin))
                            : prepared + part.row_offset,
                 .x_stride = as_is ? args.x.stride * int64_t{sizeof(float)} : args.prepared_bytes,
                 .y = y.data,
                 .y_stride = y.stride,
                 .columns = std::min(panels.end * kPanelRows, part.num_columns) - skipped,
                 .bias = args.bias != nullptr ? args.bias + column : nullptr,
                 .residual = residual ? args.residual.Row(rows.begin) + column : nullptr,
                 .residual_stride = args.residual.stride,
                 .activation = args.activation},
       .panel_bytes = part.panel_bytes,
       .rows = rows.end - rows.begin,
       .largest_weight = part.largest_weight,
       .scratch = worker.scratch().last(kLinearScratchBytes).data()});
}

// Panels of gate and of up, as many at a time as leave their products near the core.
void RunGated(const LinearArgs& args, Share panels, Share rows, const std::byte* prepared,
              Worker& worker) {
  float* products = reinterpret_cast<float*>(worker.scratch().data() + kPreparedScratchBytes);
  const PackedPart& gate = args.parts[0];
  const PackedPart& up = args.parts[1];
  for (; rows.begin < rows.end;
       rows.begin += kGateRows, prepared += kGateRows * args.prepared_bytes) {
    const Share some = {rows.begin, std::min(rows.begin + kGateRows, rows.end)};
    const int64_t count = some.end - some.begin;
    const int64_t step = std::max<int64_t>(kGateRows / count, 1);
    for (int64_t panel = panels.begin; panel < panels.end; panel += step) {
      const Share run = {panel, std::min(panel + step, panels.end)};
      const int64_t column = panel * kPanelRows;
      const int64_t columns = std::min(run.end * kPanelRows, gate.num_columns) - column;
      const Products gates = {products, (run.end - run.begin) * kPanelRows};
      const Products ups = {products + kGateFloats, gates.stride};
      RunPanels(args, gate, run, some, prepared, gates, worker);
      RunPanels(args, up, run, some, prepared, ups, worker);
      for (int64_t r = 0; r < count; ++r) {
        args.gate(gates.data + r * gates.stride, ups.data + r * ups.stride, columns,
                  args.y.Row(some.begin + r) + column);
      }
    }
  }
}

void RunUnits(const LinearArgs& args, Share units, Share rows, const std::byte* prepared,
              Worker& worker) {
  if (args.gate != nullptr) return RunGated(args, units, rows, prepared, worker);
  for (const PackedPart& part : args.parts) {
    const Share panels = {.begin = std::max<int64_t>(units.begin, 0),
                          .end = std::min(units.end, part.num_panels)};
    if (panels.begin < panels.end) {
      const int64_t column = part.first_column + panels.begin * kPanelRows;
      const Products y = {args.y.Row(rows.begin) + column, args.y.stride};
      RunPanels(args, part, panels, rows, prepared, y, worker);
    }
    units = {units.begin - part.num_panels, units.end - part.num_panels};
  }
}

// Three quarters of a member's units are its own; the others go, chunk by chunk, to whoever is
// done first, so that a core that is held up for a moment does not hold up the step.
void RunShared(const LinearArgs& args, const Slice& slice, const std::byte* prepared,
               Worker& worker) {
  const int64_t own = args.num_units * 3 / (4 * slice.members);
  const int64_t first = slice.member * own;
  RunUnits(args, {first, first + own}, slice.rows, prepared, worker);
  const int64_t shared = own * slice.members;
  const int64_t chunk = std::max<int64_t>((args.num_units - shared) / (8 * slice.members), 1);
  const int64_t chunks = (args.num_units - shared + chunk - 1) / chunk;
  int64_t claim = 0;
  while ((claim = args.claims->fetch_add(1, std::memory_order_relaxed)) < chunks) {
    const int64_t begin = shared + claim * chunk;
    RunUnits(args, {begin, std::min(begin + chunk, args.num_units)}, slice.rows, prepared, worker);
  }
  // Each member claims once in vain; the last one makes the count ready for the next call, which
  // begins behind a barrier.
  if (claim == chunks + slice.members - 1) args.claims->store(0, std::memory_order_relaxed);
}

void RunLinear(const void* kept, const StepState& state, Worker& worker) {
  const LinearArgs& args = *static_cast<const LinearArgs*>(kept);
  const int64_t rows = NumRows(args.x.rows, state);
  if (rows == 0) return;
  const Slice slice = SliceOf(rows, worker);
  const std::byte* prepared = PrepareActivations(args, slice, worker);
  if (slice.members > 1 && slice.members == worker.count()) {
    RunShared(args, slice, prepared, worker);
    return;
  }
  const int64_t begin = args.num_units * slice.member / slice.members;
  const int64_t end = args.num_units * (slice.member + 1) / slice.members;
  RunUnits(args, {begin, end}, slice.rows, prepared, worker);
}

struct PackJob {
  RawWeight weight;
  WeightForm form = WeightForm::kF32;
  std::byte* panels = nullptr;
  float (*largest_weight)(const std::byte* panel, int64_t k) = nullptr;
  std::vector<float> largest;  // by panel
};

void RunPack(const void* context, Worker& worker) {
  PackJob& job = **static_cast<PackJob* const*>(context);
  const int64_t k = job.weight.columns;
  const int64_t panel_bytes = PanelBytes(job.form, k);
  const Share share = ShareOf(NumPanels(job.weight.rows), worker);
  for (int64_t panel = share.begin; panel < share.end; ++panel) {
    std::byte* at = job.panels + panel * panel_bytes;
    PackPanel(job.weight, job.form, panel, at);
    if (job.largest_weight != nullptr) job.largest[panel] = job.largest_weight(at, k);
  }
}

// Reads, repacks and drops the checkpoint's tensor.
Status PackPart(const WeightHandle& handle, int64_t k, std::byte* panels, PackedPart& part,
                BindContext& context) {
  SPRY_ASSIGN_OR_RETURN(const HostTensor tensor, context.ReadPart(handle));
  PackJob job = {.weight = {.dtype = tensor.dtype,
                            .rows = part.num_columns,
                            .columns = k,
                            .data = tensor.data.data()},
                 .form = part.form,
                 .panels = panels,
                 .largest_weight = part.kernel->largest_weight,
                 .largest = std::vector<float>(part.num_panels)};
  PackJob* const shared = &job;
  context.pool().Run(RunPack, &shared);
  part.panels = panels;
  part.largest_weight = std::ranges::max(job.largest);
  return {};
}

// The offset of `form` in a prepared row, to which it is added unless it is there.
int64_t OffsetOf(const RowForm& form, LinearArgs& args) {
  for (const PreparedForm& prepared : args.prepared) {
    if (prepared.form.prepare == form.prepare) return prepared.offset;
  }
  const int64_t offset = args.prepared_bytes;
  const int64_t groups = (args.k + kGroup - 1) / kGroup;
  args.prepared.push_back({form, offset});
  args.prepared_bytes += (groups * form.group_bytes + 63) / 64 * 64;
  return offset;
}

Status PackWeight(const WeightRecord& record, bool gated, const LinearKernels& kernels,
                  BindContext& context, LinearArgs& args) {
  int64_t column = 0;
  for (const WeightHandle& handle : record.parts) {
    const WeightForm form = FormOf(handle.dtype, context.program().compute);
    const FormKernel& kernel = kernels.forms[static_cast<int>(form)];
    const int64_t rows = handle.shape[0];
    args.parts.push_back({.form = form,
                          .kernel = &kernel,
                          .row_offset = kernel.rows.prepare ? OffsetOf(kernel.rows, args) : 0,
                          .panel_bytes = PanelBytes(form, record.columns),
                          .num_panels = NumPanels(rows),
                          .first_column = column,
                          .num_columns = rows});
    args.num_units = gated ? NumPanels(rows) : args.num_units + NumPanels(rows);
    args.weight_bytes += args.parts.back().num_panels * args.parts.back().panel_bytes;
    column += rows;
  }
  // An odd number of lines, so that the same column of many rows does not share few places in the
  // first cache.
  if (args.prepared_bytes % 128 == 0 && args.prepared_bytes > 0) args.prepared_bytes += 64;
  SPRY_ASSIGN_OR_RETURN(std::byte * at, context.AllocateWeights(args.weight_bytes));
  for (size_t i = 0; i < args.parts.size(); ++i) {
    PackedPart& part = args.parts[i];
    SPRY_RETURN_IF_ERROR(PackPart(record.parts[i], record.columns, at, part, context));
    at += part.num_panels * part.panel_bytes;
  }
  return {};
}

}  // namespace

Result<BoundCall> BindLinear(const OpRecord& op, BindContext& context, const LinearKernels& kernels,
                             const RowKernels& row_kernels) {
  const LinearParams params = op.params.As<LinearParams>();
  const WeightRecord& record = context.program().weight(op.weights[0]);
  LinearArgs args = {
      .k = record.columns, .x = context.Resolve(op.inputs[0]), .y = context.Resolve(op.outputs[0])};
  if (params.gated) {
    args.gate = row_kernels.activate[static_cast<int>(params.activation)];
  } else {
    args.activation = params.activation;
  }
  if (params.has_residual) args.residual = context.Resolve(op.inputs[1]);
  if (params.has_bias) {
    SPRY_ASSIGN_OR_RETURN(args.bias, context.LoadFloats(op.weights[1]));
  }
  SPRY_RETURN_IF_ERROR(PackWeight(record, params.gated, kernels, context, args));
  const int64_t prepared = MaxRows(args.x.rows, context.limits()) * args.prepared_bytes;
  if (prepared > 0) args.scratch = context.ShareScratch(prepared);
  return BoundCall{.op = op.id, .run = RunLinear, .args = context.Keep(std::move(args))};
}

}  // namespace spry
