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
  int64_t num_panels = 0;    // likewise
  int64_t k = 0;
  Matrix x;
  Matrix y;
  Matrix residual;  // no data: none
  const float* bias = nullptr;
  Activation activation = Activation::kNone;
  std::vector<PreparedForm> prepared;   // all that the parts want
  int64_t prepared_bytes = 0;           // of a row
  std::byte* const* scratch = nullptr;  // of prepared rows
  // How many chunks of panels were claimed, and claimed in vain, in this call.
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

// The prepared form of the slice's first row.
const std::byte* PrepareActivations(const LinearArgs& args, const Slice& slice, Worker& worker) {
  if (args.prepared_bytes == 0) return nullptr;
  const int64_t rows = slice.rows.end - slice.rows.begin;
  const bool fits = rows * args.prepared_bytes <= kWorkerScratchBytes - kLinearScratchBytes;
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

// Some panels of a part times some rows, of which the first is prepared at `prepared`.
void RunPanels(const LinearArgs& args, const PackedPart& part, Share panels, Share rows,
               const std::byte* prepared, Worker& worker) {
  const int64_t skipped = panels.begin * kPanelRows;
  const int64_t column = part.first_column + skipped;
  const int64_t columns = std::min(panels.end * kPanelRows, part.num_columns) - skipped;
  if (columns <= 0) return;
  const bool as_is = part.kernel->rows.prepare == nullptr;
  const bool residual = args.residual.data != nullptr;
  part.kernel->multiply(
      {.first = {.panel = part.panels + panels.begin * part.panel_bytes,
                 .k = args.k,
                 .x = as_is ? reinterpret_cast<const std::byte*>(args.x.Row(rows.begin))
                            : prepared + part.row_offset,
                 .x_stride = as_is ? args.x.stride * int64_t{sizeof(float)} : args.prepared_bytes,
                 .y = args.y.Row(rows.begin) + column,
                 .y_stride = args.y.stride,
                 .columns = columns,
                 .bias = args.bias != nullptr ? args.bias + column : nullptr,
                 .residual = residual ? args.residual.Row(rows.begin) + column : nullptr,
                 .residual_stride = args.residual.stride,
                 .activation = args.activation},
       .panel_bytes = part.panel_bytes,
       .rows = rows.end - rows.begin,
       .largest_weight = part.largest_weight,
       .scratch = worker.scratch().last(kLinearScratchBytes).data()});
}

// Panels are numbered through all parts.
void RunNumbered(const LinearArgs& args, Share numbers, Share rows, const std::byte* prepared,
                 Worker& worker) {
  for (const PackedPart& part : args.parts) {
    const Share panels = {.begin = std::max<int64_t>(numbers.begin, 0),
                          .end = std::min(numbers.end, part.num_panels)};
    if (panels.begin < panels.end) RunPanels(args, part, panels, rows, prepared, worker);
    numbers = {numbers.begin - part.num_panels, numbers.end - part.num_panels};
  }
}

// Three quarters of a member's panels are its own; the others go, chunk by chunk, to whoever is
// done first, so that a core that is held up for a moment does not hold up the step.
void RunShared(const LinearArgs& args, const Slice& slice, const std::byte* prepared,
               Worker& worker) {
  const int64_t own = args.num_panels * 3 / (4 * slice.members);
  const int64_t first = slice.member * own;
  RunNumbered(args, {first, first + own}, slice.rows, prepared, worker);
  const int64_t shared = own * slice.members;
  const int64_t chunk = std::max<int64_t>((args.num_panels - shared) / (8 * slice.members), 1);
  const int64_t chunks = (args.num_panels - shared + chunk - 1) / chunk;
  int64_t claim = 0;
  while ((claim = args.claims->fetch_add(1, std::memory_order_relaxed)) < chunks) {
    const int64_t begin = shared + claim * chunk;
    RunNumbered(args, {begin, std::min(begin + chunk, args.num_panels)}, slice.rows, prepared,
                worker);
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
  const int64_t begin = args.num_panels * slice.member / slice.members;
  const int64_t end = args.num_panels * (slice.member + 1) / slice.members;
  RunNumbered(args, {begin, end}, slice.rows, prepared, worker);
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

Status PackWeight(const WeightRecord& record, const LinearKernels& kernels, BindContext& context,
                  LinearArgs& args) {
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
    args.num_panels += args.parts.back().num_panels;
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

Result<BoundCall> BindLinear(const OpRecord& op, BindContext& context,
                             const LinearKernels& kernels) {
  const LinearParams params = op.params.As<LinearParams>();
  const WeightRecord& record = context.program().weight(op.weights[0]);
  LinearArgs args = {.k = record.columns,
                     .x = context.Resolve(op.inputs[0]),
                     .y = context.Resolve(op.outputs[0]),
                     .activation = params.activation};
  if (params.has_residual) args.residual = context.Resolve(op.inputs[1]);
  if (params.has_bias) {
    SPRY_ASSIGN_OR_RETURN(args.bias, context.LoadFloats(op.weights[1]));
  }
  SPRY_RETURN_IF_ERROR(PackWeight(record, kernels, context, args));
  const int64_t prepared = MaxRows(args.x.rows, context.limits()) * args.prepared_bytes;
  if (prepared > 0) args.scratch = context.ShareScratch(prepared);
  return BoundCall{.op = op.id, .run = RunLinear, .args = context.Keep(std::move(args))};
}

}  // namespace spry
