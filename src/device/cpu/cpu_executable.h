// A Program bound to the CPU: a list of calls that Launch runs on the pool, on the calling thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/cpu/kernel.h"
#include "device/cpu/step_ring.h"
#include "device/device.h"

namespace spry {

struct CpuBinding {
  const KernelTable& kernels;
  const CpuAttentionBackend& attention;
  // As CompileOptions::progress, of the weights' bytes in the checkpoint.
  const std::function<void(int64_t done_bytes, int64_t total_bytes)>& progress;
};

class CpuExecutable final : public Executable {
 public:
  // Binds every op. `program` must outlive the result; the pool is shared.
  static Result<std::unique_ptr<CpuExecutable>> Make(const Program& program,
                                                     const StepLimits& limits,
                                                     std::shared_ptr<WorkerPool> pool,
                                                     const CpuBinding& binding);

  StepSlot Slot(StepId step) override { return ring_.slot(step); }
  Status Launch(StepId step) override;
  Result<const StepResult*> Poll(StepId step) override;
  RuleSlot RuleImage(int32_t slot) override { return ring_.state().rule_slot(slot); }
  Status CopyLogits(std::span<float> logits) override;
  Status Profile(StepProfile* profile) override;

  // For tests of single ops: where a tensor of the program lies.
  Matrix Resolve(const Tensor& tensor) const { return context_->Resolve(tensor); }
  const StepState& state() const { return ring_.state(); }
  std::byte* kv_layer(LayerIdx layer) const { return context_->kv_layer(layer); }

 private:
  CpuExecutable(const StepLimits& limits, std::shared_ptr<WorkerPool> pool,
                MemoryRegion step_memory, std::unique_ptr<BindContext> context);
  Status Bind(const CpuBinding& binding);
  static void RunCalls(const void* context, Worker& worker);
  static void RunProfiledCalls(const void* context, Worker& worker);

  std::shared_ptr<WorkerPool> pool_;
  StepRing ring_;
  std::unique_ptr<BindContext> context_;
  std::vector<BoundCall> calls_;  // one for each op of the program
  StepProfile* profile_ = nullptr;
  ProfiledStep* profiled_ = nullptr;  // the step that runs; null: it is not recorded
};

}  // namespace spry
