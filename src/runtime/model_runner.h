// Turns plans into steps on a device: fills a slot, launches it, hands out its results. Owns the
// Program and its Executable. Called by the engine thread alone; a steady step allocates nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/row.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "program/program.h"
#include "runtime/memory_plan.h"
#include "sched/batch_plan.h"

namespace spry {

struct RunnerOptions {
  MemoryOptions memory;
  std::optional<DType> compute;  // --dtype: f32, bf16 or f16; absent: the checkpoint's
  std::optional<DType> kv;       // --kv-cache-dtype; absent: as compute
  std::string attention_backend;
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;  // of loading
};

// What is settled before anything is loaded: the traced model and how much memory it takes.
struct ModelPlan {
  Program program;
  MemoryPlan memory;
};
Result<ModelPlan> PlanModel(const Device& device, const Checkpoint& checkpoint,
                            const RunnerOptions& options);

class ModelRunner {
 public:
  // `device` must outlive the runner.
  static Result<std::unique_ptr<ModelRunner>> Create(Device& device, const Checkpoint& checkpoint,
                                                     const RunnerOptions& options);

  const MemoryPlan& memory_plan() const { return plan_; }
  const Program& program() const { return program_; }

  // Launches a step. At most memory_plan().run_ahead may be in flight.
  Status Launch(const BatchPlan& plan);
  // The results of the oldest step in flight; waits for them. They stay valid until run_ahead + 1
  // further steps have been launched.
  Result<StepResults> WaitOldest();
  // Time spent in WaitOldest for steps that were not done, since the start.
  int64_t waited_nanos() const { return waited_nanos_; }
  int steps_in_flight() const { return static_cast<int>(launched_ - retired_); }

  // The logits [L, vocab] of the step launched last and waited for; see Executable.
  Status CopyLogits(std::span<float> logits) { return executable_->CopyLogits(logits); }
  // For benchmarks, with no step in flight and none to follow; see Executable.
  Result<LaunchCosts> MeasureLaunches() { return executable_->MeasureLaunches(); }
  Status Profile(StepProfile* profile) { return executable_->Profile(profile); }
  std::string DeviceStats() const { return executable_->Stats(); }

 private:
  ModelRunner() = default;
  // For joins with rules and masks to be asked; returns how many the slot's step has to copy.
  int32_t WriteRuleImages(const BatchPlan& plan, const StepSlot& slot);

  Program program_;
  MemoryPlan plan_;
  RuleSlotLayout rule_layout_;
  std::unique_ptr<Executable> executable_;
  struct StepSize {
    size_t rows = 0;
    size_t samples = 0;
  };
  std::vector<StepSize> sizes_;  // [ring_size]
  uint64_t launched_ = 0;
  uint64_t retired_ = 0;
  int64_t waited_nanos_ = 0;
};

}  // namespace spry
