#include "device/cpu/simd/sample.h"

#include <cmath>

#include "device/cpu/simd/sample_row.h"
#include "ops/logprobs.h"

namespace spry {
namespace {

// What one worker found in its share of a row.
struct RowPart {
  LogitScan scan;
  DrawBest best;
};

struct SampleArgs {
  const SampleKernels* kernels = nullptr;
  Matrix logits;
  int64_t max_samples = 0;
  int64_t parts_bytes = 0;              // of all workers
  int64_t worker_bytes = 0;             // of one worker's lists
  std::byte* const* scratch = nullptr;  // RowPart [workers][max_samples], then the lists
};

enum class RowKind { kPadding, kTarget, kGreedy, kDraw, kOwn };

RowKind KindOf(const StepState& state, int64_t l) {
  const StagedRow& staged = state.rows[state.sample_rows[l]];
  if (!staged.live) return RowKind::kPadding;
  if (state.sample_targets[l] >= 0) return RowKind::kTarget;
  const RowState& row = state.row_states[staged.row];
  const RowParams& params = row.params;
  if (row.num_outputs < params.min_outputs && params.num_stop_ids > 0) return RowKind::kOwn;
  if (!(params.temperature > 0.0f)) return RowKind::kGreedy;
  const bool filters = params.top_k > 0 || params.top_p < 1.0f || params.min_p > 0.0f;
  return filters ? RowKind::kOwn : RowKind::kDraw;
}

class SampleRun {
 public:
  SampleRun(const SampleArgs& args, const StepState& state, Worker& worker)
      : args_(args),
        state_(state),
        worker_(worker),
        vocab_size_(args.logits.width),
        sampler_(*args.kernels,
                 SampleScratch::Map(vocab_size_, *args.scratch + args.parts_bytes +
                                                     worker.index() * args.worker_bytes),
                 static_cast<int32_t>(vocab_size_)) {}

  void Run() {
    const int64_t rows = state_.header->num_samples;
    if (rows == 0) return;
    constexpr int64_t kGrain = 64;  // logits; a share ends where a cache line does
    const Share share = ShareOf(vocab_size_, worker_, kGrain);
    bool any_draw = false;
    for (int64_t l = 0; l < rows; ++l) {
      const RowKind kind = KindOf(state_, l);
      if (kind == RowKind::kPadding) continue;
      any_draw |= kind == RowKind::kDraw;
      LogitScan& scan = Part(worker_.index(), l).scan;
      scan = args_.kernels->scan(args_.logits.Row(l) + share.begin, share.end - share.begin);
      scan.first += static_cast<int32_t>(share.begin);
    }
    worker_.Barrier();
    int64_t own_rows = 0;
    for (int64_t l = 0; l < rows; ++l) {
      const RowKind kind = KindOf(state_, l);
      if (kind == RowKind::kPadding) continue;
      const LogitScan scan = WholeScan(l);
      if (kind == RowKind::kDraw) {
        DrawShare(l, scan, share);
      } else if (own_rows++ % worker_.count() == worker_.index()) {
        PickAlone(l, scan, kind);
      }
    }
    if (!any_draw) return;
    worker_.Barrier();
    int64_t drawn_rows = 0;
    for (int64_t l = 0; l < rows; ++l) {
      if (KindOf(state_, l) != RowKind::kDraw) continue;
      if (drawn_rows++ % worker_.count() == worker_.index()) FinishDraw(l, WholeScan(l));
    }
  }

 private:
  RowPart& Part(int64_t worker, int64_t l) {
    return reinterpret_cast<RowPart*>(*args_.scratch)[worker * args_.max_samples + l];
  }
  const RowState& StateOf(int64_t l) const {
    return state_.row_states[state_.rows[state_.sample_rows[l]].row];
  }

  // In the order of the shares, so that of equals the lowest index stays.
  LogitScan WholeScan(int64_t l) {
    LogitScan whole = Part(0, l).scan;
    for (int w = 1; w < worker_.count(); ++w) {
      const LogitScan& scan = Part(w, l).scan;
      whole.has_nan |= scan.has_nan;
      if (!(scan.max > whole.max)) continue;
      whole.max = scan.max;
      whole.first = scan.first;
    }
    return whole;
  }

  static bool IsUseless(const LogitScan& scan) { return scan.has_nan || !std::isfinite(scan.max); }

  void DrawShare(int64_t l, const LogitScan& scan, const Share& share) {
    if (IsUseless(scan)) return;
    Part(worker_.index(), l).best =
        args_.kernels->draw(args_.logits.Row(l) + share.begin, share.end - share.begin,
                            static_cast<int32_t>(share.begin), MakeDrawSpec(StateOf(l), scan));
  }

  void PickAlone(int64_t l, const LogitScan& scan, RowKind kind) {
    Sampled& sampled = state_.sampled[l];
    sampled.saw_nan = IsUseless(scan);
    if (sampled.saw_nan) return;
    switch (kind) {
      case RowKind::kTarget: sampled.token = state_.sample_targets[l]; break;
      case RowKind::kGreedy: sampled.token = scan.first; break;
      default: sampled.token = sampler_.Pick(StateOf(l), args_.logits.Row(l), scan);
    }
    Report(l, scan, sampled);
  }

  void FinishDraw(int64_t l, const LogitScan& scan) {
    Sampled& sampled = state_.sampled[l];
    sampled.saw_nan = IsUseless(scan);
    if (sampled.saw_nan) return;
    DrawBest best;
    for (int w = 0; w < worker_.count(); ++w) {
      const DrawBest& part = Part(w, l).best;
      if (part.score > best.score) best = part;
    }
    sampled.token = best.id;
    Report(l, scan, sampled);
  }

  void Report(int64_t l, const LogitScan& scan, Sampled& sampled) {
    const int32_t wanted = LogprobsWanted(state_, static_cast<int32_t>(l));
    if (wanted >= 0) sampler_.ReportLogprobs(args_.logits.Row(l), scan.max, wanted, sampled);
  }

  const SampleArgs& args_;
  const StepState& state_;
  Worker& worker_;
  int64_t vocab_size_;
  RowSampler sampler_;
};

void RunSample(const void* opaque, const StepState& state, Worker& worker) {
  SampleRun(*static_cast<const SampleArgs*>(opaque), state, worker).Run();
}

int64_t AlignToLine(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Result<BoundCall> BindSample(const OpRecord& op, BindContext& context,
                             const SampleKernels& kernels) {
  const Matrix logits = context.Resolve(op.inputs[0]);
  const int64_t workers = context.pool().size();
  const int64_t max_samples = context.limits().max_samples;
  SampleArgs args = {
      .kernels = &kernels,
      .logits = logits,
      .max_samples = max_samples,
      .parts_bytes = AlignToLine(workers * max_samples * static_cast<int64_t>(sizeof(RowPart))),
      .worker_bytes = AlignToLine(SampleScratch::Bytes(logits.width))};
  args.scratch = context.ShareScratch(args.parts_bytes + workers * args.worker_bytes);
  return BoundCall{.op = op.id, .run = RunSample, .args = context.Keep(args)};
}

}  // namespace spry
