#include "runtime/model_runner.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/pause.h"
#include "models/model.h"

namespace spry {

Result<ModelPlan> PlanModel(const Device& device, const Checkpoint& checkpoint,
                            const RunnerOptions& options) {
  const ModelConfig& config = checkpoint.config;
  SPRY_ASSIGN_OR_RETURN(const int64_t longest,
                        LongestSequence(options.memory, config.max_position));
  const DType compute = options.compute.value_or(config.dtype);
  ModelPlan plan;
  SPRY_ASSIGN_OR_RETURN(plan.program, TraceModel(config, *checkpoint.weights,
                                                 {.compute = compute,
                                                  .activation = device.ActivationDType(compute),
                                                  .kv = options.kv.value_or(compute),
                                                  .max_length = longest},
                                                 device.fusions()));
  SPRY_ASSIGN_OR_RETURN(plan.memory, PlanMemory(device, plan.program, options.memory, longest,
                                                options.attention_backend));
  return plan;
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::Create(Device& device,
                                                         const Checkpoint& checkpoint,
                                                         const RunnerOptions& options) {
  SPRY_ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(device, checkpoint, options));
  std::unique_ptr<ModelRunner> runner(new ModelRunner);
  runner->program_ = std::move(plan.program);
  runner->plan_ = plan.memory;
  SPRY_ASSIGN_OR_RETURN(
      runner->executable_,
      device.Compile(runner->program_, {.limits = runner->plan_.limits,
                                        .attention_backend = options.attention_backend,
                                        .progress = options.progress}));
  runner->sizes_.resize(runner->plan_.limits.ring_size);
  return runner;
}

Status ModelRunner::Launch(const BatchPlan& plan) {
  CHECK(steps_in_flight() < plan_.run_ahead);
  const StepId step(launched_);
  const StepSlot slot = executable_->Slot(step);
  *slot.header = {.step = step.value(),
                  .num_tokens = plan.num_tokens,
                  .num_rows = static_cast<int32_t>(plan.rows.size()),
                  .num_samples = plan.num_samples,
                  .num_joins = static_cast<int32_t>(plan.joins.size()),
                  .num_block_writes = static_cast<int32_t>(plan.block_writes.size())};
  int32_t token = 0;
  int32_t sample = 0;
  for (size_t r = 0; r < plan.rows.size(); ++r) {
    const PlannedRow& row = plan.rows[r];
    const bool goes_on = row.num_samples > 0 && !row.draws;
    slot.rows[r] = {.row = row.row.value(),
                    .query_start = token,
                    .num_tokens = row.num_tokens,
                    .start = row.start,
                    .sample_index = row.num_samples > 0 ? sample : -1,
                    .num_samples = row.num_samples,
                    .next_token = goes_on ? row.tokens[row.num_tokens].value() : -1,
                    .decode = row.decode ? 1 : 0};
    sample += row.num_samples;
    if (!row.decode) {
      for (int i = 0; i < row.num_tokens; ++i) slot.token_ids[token + i] = row.tokens[i].value();
    }
    token += row.num_tokens;
  }
  CHECK(token == plan.num_tokens && sample == plan.num_samples);
  for (size_t i = 0; i < plan.joins.size(); ++i) {
    const RowJoin& join = plan.joins[i];
    slot.joins[i] = {
        .row = join.row.value(), .num_outputs = join.num_outputs, .params = *join.params};
  }
  for (size_t i = 0; i < plan.block_writes.size(); ++i) {
    const BlockWrite& write = plan.block_writes[i];
    slot.block_writes[i] = {
        .row = write.row.value(), .index = write.index, .block = write.block.value()};
  }
  sizes_[launched_ % sizes_.size()] = {.rows = plan.rows.size(),
                                       .samples = static_cast<size_t>(plan.num_samples)};
  ++launched_;
  return executable_->Launch(step);
}

Result<StepResults> ModelRunner::WaitOldest() {
  CHECK(steps_in_flight() > 0);
  const StepId step(retired_);
  SPRY_ASSIGN_OR_RETURN(const StepResult* result, executable_->Poll(step));
  if (result == nullptr) {
    const SteadyClock clock;
    const int64_t begin = clock.NowNanos();
    while (result == nullptr) {
      Pause();
      SPRY_ASSIGN_OR_RETURN(result, executable_->Poll(step));
    }
    waited_nanos_ += clock.NowNanos() - begin;
  }
  ++retired_;
  const StepSize& size = sizes_[step.value() % sizes_.size()];
  return StepResults{.rows = {result->rows, size.rows},
                     .logprobs = {result->logprobs, size.samples}};
}

}  // namespace spry
