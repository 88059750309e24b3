#include "app/op_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "ops/attention/attention.h"

namespace spry {
namespace {

double Micros(int64_t from_ns, int64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-3;
}

// Ops of one kind are told apart by the weights that they multiply with.
std::string KindOf(const Program& program, const OpRecord& op) {
  const std::string name(OpName(op.id));
  if (op.id != OpId::kLinear) return name;
  const WeightRecord& weight = program.weight(op.weights[0]);
  return fmt::format("{} {} x {} {}", name, weight.rows, weight.columns,
                     Traits(weight.parts.front().dtype).name);
}

struct Work {
  double bytes = 0;  // that must be read
  double us_of_products = 0;
};

Work LinearWork(const Program& program, const OpRecord& op, const ProfiledStep& step,
                const DevicePeaks& peaks) {
  const WeightRecord& weight = program.weight(op.weights[0]);
  const int32_t rows = op.outputs[0].rows == RowDim::kTokens ? step.tokens : step.samples;
  Work work;
  if (rows == 0) return work;
  for (const WeightHandle& part : weight.parts) {
    const int64_t outputs = part.shape[0];
    work.bytes += static_cast<double>(outputs * RowBytes(part.dtype, weight.columns));
    const double operations = 2.0 * rows * static_cast<double>(outputs * weight.columns);
    const double tflops = peaks.TflopsFor(part.dtype);
    if (tflops > 0) work.us_of_products += operations / tflops * 1e-6;
  }
  return work;
}

Work AttentionWork(const Program& program, const OpRecord& op, const ProfiledStep& step,
                   const DevicePeaks& peaks) {
  const AttentionParams params = op.params.As<AttentionParams>();
  const KvLayer& layer = program.kv_layers[params.layer.value()];
  const int64_t dims = layer.head_dim + layer.v_head_dim;
  Work work;
  work.bytes =
      static_cast<double>(step.read_positions * layer.num_kv_heads * RowBytes(layer.dtype, dims));
  const double operations =
      2.0 * static_cast<double>(step.seen_positions * params.num_heads * dims);
  const double tflops = peaks.AttentionTflops(layer.dtype);
  if (tflops > 0) work.us_of_products = operations / tflops * 1e-6;
  return work;
}

// 0: nothing that a bound is known for.
double BoundUs(const Program& program, const OpRecord& op, const ProfiledStep& step,
               const DevicePeaks& peaks) {
  Work work;
  if (op.id == OpId::kLinear) work = LinearWork(program, op, step, peaks);
  if (op.id == OpId::kAttention) work = AttentionWork(program, op, step, peaks);
  const double us_of_bytes = peaks.gb_per_s > 0 ? work.bytes / peaks.gb_per_s * 1e-3 : 0.0;
  return std::max(us_of_bytes, work.us_of_products);
}

struct Row {
  std::string kind;
  int ops = 0;  // of a step
  double us = 0;
  double bound_us = 0;
};

// Sums over steps, by kind in the order of the program.
std::vector<Row> SumByKind(const Program& program, std::span<const ProfiledStep* const> steps,
                           const DevicePeaks& peaks) {
  std::vector<Row> rows;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const OpRecord& op = program.ops[i];
    const std::string kind = KindOf(program, op);
    auto row = std::ranges::find(rows, kind, &Row::kind);
    if (row == rows.end()) row = rows.insert(rows.end(), Row{.kind = kind});
    ++row->ops;
    for (const ProfiledStep* step : steps) {
      row->us += Micros(i == 0 ? step->begin_ns : step->op_end_ns[i - 1], step->op_end_ns[i]);
      row->bound_us += BoundUs(program, op, *step, peaks);
    }
  }
  return rows;
}

std::string Table(std::string_view title, const Program& program,
                  std::span<const ProfiledStep* const> steps, const DevicePeaks& peaks) {
  if (steps.empty()) return "";
  const auto count = static_cast<double>(steps.size());
  std::vector<Row> rows = SumByKind(program, steps, peaks);
  Row all{.kind = "all"};
  int64_t tokens = 0;
  for (const ProfiledStep* step : steps) tokens += step->tokens;
  for (const Row& row : rows) {
    all.ops += row.ops;
    all.us += row.us;
    all.bound_us += row.bound_us;
  }
  rows.push_back(all);
  std::string text =
      fmt::format("{}: {}, of {:.1f} tokens on average\n{:<28} {:>4} {:>11} {:>7} {:>11} {:>8}\n",
                  title, steps.size(), static_cast<double>(tokens) / count, "op", "ops",
                  "us a step", "share", "bound us", "of bound");
  for (const Row& row : rows) {
    fmt::format_to(std::back_inserter(text), "{:<28} {:>4} {:>11.1f} {:>6.1f}%", row.kind, row.ops,
                   row.us / count, 100.0 * row.us / all.us);
    if (row.bound_us > 0) {
      fmt::format_to(std::back_inserter(text), " {:>11.1f} {:>7.1f}%", row.bound_us / count,
                     100.0 * row.bound_us / row.us);
    }
    text += '\n';
  }
  return text;
}

std::string Event(std::string_view name, int track, double begin_us, double us) {
  return fmt::format(
      R"({{"name": "{}", "ph": "X", "pid": 1, "tid": {}, "ts": {:.3f}, "dur": {:.3f}}})", name,
      track, begin_us, us);
}

}  // namespace

std::string ProfileText(const Program& program, std::span<const ProfiledStep> steps,
                        const DevicePeaks& peaks) {
  std::vector<const ProfiledStep*> decode, others;
  for (const ProfiledStep& step : steps) {
    (step.tokens == step.samples ? decode : others).push_back(&step);
  }
  return Table("Steps with prompts", program, others, peaks) +
         Table("Decode steps", program, decode, peaks);
}

std::string ProfileTrace(const Program& program, std::span<const ProfiledStep> steps) {
  constexpr int kStepTrack = 1, kOpTrack = 2;
  std::vector<std::string> kinds;
  for (const OpRecord& op : program.ops) kinds.push_back(KindOf(program, op));
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [";
  std::string_view separator = "\n";
  const auto add = [&](const std::string& event) {
    text += separator;
    text += event;
    separator = ",\n";
  };
  for (const ProfiledStep& step : steps) {
    const int64_t zero = steps.front().begin_ns;
    add(Event(fmt::format("step of {} tokens", step.tokens), kStepTrack,
              Micros(zero, step.begin_ns), Micros(step.begin_ns, step.op_end_ns.back())));
    int64_t begin = step.begin_ns;
    for (size_t i = 0; i < kinds.size(); ++i) {
      add(Event(kinds[i], kOpTrack, Micros(zero, begin), Micros(begin, step.op_end_ns[i])));
      begin = step.op_end_ns[i];
    }
  }
  return text + "\n]}\n";
}

}  // namespace spry
