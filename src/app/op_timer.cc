#include "app/op_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "base/pause.h"
#include "ops/embed.h"
#include "ops/fusion.h"

namespace spry {
namespace {

constexpr int kTableRows = 16;  // token ids that the inputs come from
constexpr int kWarmSteps = 10;
constexpr int kFewestSteps = 10;
constexpr int kMostSteps = 300;
constexpr double kTargetMicros = 200e3;  // of one measurement
// Tokens of a row in a step that fills its blocks: attention over few is quick. The largest block.
constexpr int kFillTokens = 256;

// A table whose values are small numbers.
WeightHandle InputTable(int64_t width) {
  const Shape shape{kTableRows, width};
  return {.name = "inputs", .dtype = DType::kF32, .shape = shape, .read = [shape] {
            auto values = std::make_shared<std::vector<float>>(*shape.elements());
            for (size_t i = 0; i < values->size(); ++i) {
              (*values)[i] = static_cast<float>(i % 31) * 0.05f - 0.75f;
            }
            return Result<HostTensor>(
                HostTensor{DType::kF32, shape, std::as_bytes(std::span(*values)), values});
          }};
}

Result<Program> Trace(const Device& device, const TimedOp& op, int copies) {
  Tracer tracer("timed op", op.trace);
  const Tensor inputs = Embed(tracer, InputTable(op.input_width));
  for (int copy = 0; copy < copies; ++copy) op.emit(tracer, inputs, copy);
  tracer.Emit({.id = OpId::kAdvance});
  SPRY_ASSIGN_OR_RETURN(Program program, tracer.Finish(kTableRows));
  FuseOps(program, device.fusions());
  return program;
}

Status CheckFits(const Device& device, const Program& program, const CompileOptions& options) {
  SPRY_ASSIGN_OR_RETURN(const MemoryNeeds needs, device.Plan(program, options));
  const int64_t bytes = needs.weights + needs.activations + needs.step + needs.graphs +
                        needs.kv_per_block * options.limits.num_blocks;
  const int64_t free_bytes = device.info().free_memory_bytes;
  if (bytes <= free_bytes) return {};
  return ResourceExhausted(fmt::format("this shape needs {} MiB of memory; {} MiB are free",
                                       bytes >> 20, free_bytes >> 20));
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

Result<std::unique_ptr<StepReplay>> StepReplay::Create(Device& device, Program program,
                                                       const CompileOptions& options) {
  std::unique_ptr<StepReplay> replay(new StepReplay);
  replay->program_ = std::move(program);
  replay->limits_ = options.limits;
  SPRY_RETURN_IF_ERROR(CheckFits(device, replay->program_, options));
  SPRY_ASSIGN_OR_RETURN(replay->executable_, device.Compile(replay->program_, options));
  return replay;
}

StepSlot StepReplay::NewStep() {
  const StepSlot slot = executable_->Slot(StepId(launched_));
  *slot.header = {.step = launched_};
  return slot;
}

void StepReplay::AddRow(const StepSlot& slot, int32_t row, const TimedRow& timed) {
  StepHeader& header = *slot.header;
  for (int32_t i = 0; i < timed.num_tokens; ++i) {
    slot.token_ids[header.num_tokens + i] = (timed.start + i) * 7 % kTableRows;
  }
  slot.rows[header.num_rows++] = {.row = row,
                                  .query_start = header.num_tokens,
                                  .num_tokens = timed.num_tokens,
                                  .start = timed.start,
                                  .sample_index = header.num_samples++,
                                  .num_samples = 1};
  header.num_tokens += timed.num_tokens;
}

Status StepReplay::Launch() { return executable_->Launch(StepId(launched_++)); }

Status StepReplay::WaitOldest() {
  const StepResult* results = nullptr;
  while (true) {
    SPRY_ASSIGN_OR_RETURN(results, executable_->Poll(StepId(retired_)));
    if (results != nullptr) break;
    Pause();
  }
  ++retired_;
  return {};
}

Status StepReplay::Start(const std::vector<RowBlocks>& blocks) {
  // Which token is "sampled" has no meaning; no row may end.
  const RowParams params{.max_outputs = std::numeric_limits<int32_t>::max()};
  const StepSlot slot = NewStep();
  for (int32_t row = 0; row < static_cast<int32_t>(blocks.size()); ++row) {
    slot.joins[slot.header->num_joins++] = {.row = row, .params = params};
    if (blocks[row].count > 0) {
      slot.block_writes[slot.header->num_block_writes++] = {.row = row, .block = blocks[row].first};
    }
    AddRow(slot, row, {});
  }
  SPRY_RETURN_IF_ERROR(Launch());
  SPRY_RETURN_IF_ERROR(WaitOldest());
  return FillBlocks(blocks);
}

// Memory that was never written may be no memory at all, and reading it costs nothing. Every block
// is written as one of the first of its row, so that attention has little to do; then the tables
// are put right.
Status StepReplay::FillBlocks(const std::vector<RowBlocks>& blocks) {
  const int32_t per_row = kFillTokens / limits_.block_size;
  const TimedRow filling{.num_tokens = per_row * limits_.block_size};
  const auto put = [](const StepSlot& slot, int32_t row, int32_t index, int32_t block) {
    slot.block_writes[slot.header->num_block_writes++] = {
        .row = row, .index = index, .block = block};
  };
  for (int32_t row = 0; row < static_cast<int32_t>(blocks.size()); ++row) {
    const auto [first, count] = blocks[row];
    for (int32_t done = 0; done < count; done += per_row) {
      const StepSlot slot = NewStep();
      for (int32_t i = 0; i < per_row; ++i) {
        put(slot, row, i, first + std::min(done + i, count - 1));
      }
      AddRow(slot, row, filling);
      SPRY_RETURN_IF_ERROR(Launch());
      SPRY_RETURN_IF_ERROR(WaitOldest());
    }
    if (count == 0) continue;
    const StepSlot slot = NewStep();
    for (int32_t i = 0; i < count; ++i) put(slot, row, i, first + i);
    AddRow(slot, row, {});
    SPRY_RETURN_IF_ERROR(Launch());
    SPRY_RETURN_IF_ERROR(WaitOldest());
  }
  return {};
}

// Between the ends of neighbouring steps.
Result<std::vector<double>> StepReplay::Micros(const std::vector<TimedRow>& rows, int steps) {
  std::vector<double> micros;
  const uint64_t end = launched_ + static_cast<uint64_t>(steps);
  const auto depth = static_cast<uint64_t>(limits_.ring_size - 1);
  auto last = std::chrono::steady_clock::now();
  while (retired_ < end) {
    while (launched_ < end && launched_ - retired_ < depth) {
      const StepSlot slot = NewStep();
      for (size_t r = 0; r < rows.size(); ++r) AddRow(slot, static_cast<int32_t>(r), rows[r]);
      SPRY_RETURN_IF_ERROR(Launch());
    }
    SPRY_RETURN_IF_ERROR(WaitOldest());
    const auto now = std::chrono::steady_clock::now();
    micros.push_back(std::chrono::duration<double, std::micro>(now - last).count());
    last = now;
  }
  return micros;
}

Result<double> StepReplay::MedianMicros(const std::vector<TimedRow>& rows) {
  SPRY_ASSIGN_OR_RETURN(const std::vector<double> warm, Micros(rows, kWarmSteps));
  const int steps =
      std::clamp(static_cast<int>(kTargetMicros / Median(warm)), kFewestSteps, kMostSteps);
  SPRY_ASSIGN_OR_RETURN(const std::vector<double> micros, Micros(rows, steps));
  return Median(micros);
}

Result<OpTimer> OpTimer::Create(Device& device, const TimedOp& op, CompileOptions options) {
  if (device.name() == "null") {
    return InvalidArgument("the null device computes nothing that could be timed; use another");
  }
  StepLimits& limits = options.limits;
  limits.ring_size = device.defaults().run_ahead + 1;
  limits.max_blocks_per_row =
      std::max({limits.max_blocks_per_row, kFillTokens / limits.block_size});
  limits.max_block_writes = limits.max_rows + limits.max_blocks_per_row + kFillTokens;
  limits.max_tokens = std::max(limits.max_tokens, kFillTokens);
  OpTimer timer;
  timer.copies_ = op.copies;
  SPRY_ASSIGN_OR_RETURN(Program with, Trace(device, op, op.copies));
  SPRY_ASSIGN_OR_RETURN(timer.with_, StepReplay::Create(device, std::move(with), options));
  constexpr int kNone = 0;
  SPRY_ASSIGN_OR_RETURN(Program without, Trace(device, op, kNone));
  options.attention_backend.clear();  // which need not serve a program without attention
  SPRY_ASSIGN_OR_RETURN(timer.without_, StepReplay::Create(device, std::move(without), options));
  return timer;
}

Status OpTimer::Start(const std::vector<RowBlocks>& blocks) {
  SPRY_RETURN_IF_ERROR(with_->Start(blocks));
  // Without the op nobody reads a block.
  return without_->Start(std::vector<RowBlocks>(blocks.size()));
}

Result<double> OpTimer::Measure(const std::vector<TimedRow>& rows) {
  SPRY_ASSIGN_OR_RETURN(const double with, with_->MedianMicros(rows));
  SPRY_ASSIGN_OR_RETURN(const double without, without_->MedianMicros(rows));
  return (with - without) / copies_;
}

}  // namespace spry
