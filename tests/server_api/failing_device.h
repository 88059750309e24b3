// A device that fails for good at one of its steps, which lasts until the test says so.
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "device/device.h"

namespace spry {

class FailingExecutable final : public Executable {
 public:
  FailingExecutable(std::unique_ptr<Executable> works, uint64_t fails_at,
                    std::shared_future<void> fails_when)
      : works_(std::move(works)), fails_at_(fails_at), fails_when_(std::move(fails_when)) {}

  StepSlot Slot(StepId step) override { return works_->Slot(step); }
  Status Launch(StepId step) override { return works_->Launch(step); }
  Result<const StepResult*> Poll(StepId step) override {
    if (step.value() < fails_at_) return works_->Poll(step);
    if (fails_when_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return nullptr;
    return Internal("the card fell out of the machine");
  }
  RuleSlot RuleImage(int32_t slot) override { return works_->RuleImage(slot); }
  Status CopyLogits(std::span<float> logits) override { return works_->CopyLogits(logits); }

 private:
  std::unique_ptr<Executable> works_;
  uint64_t fails_at_;
  std::shared_future<void> fails_when_;
};

class FailingDevice final : public Device {
 public:
  FailingDevice(std::unique_ptr<Device> works, uint64_t fails_at,
                std::shared_future<void> fails_when)
      : works_(std::move(works)), fails_at_(fails_at), fails_when_(std::move(fails_when)) {}

  std::string_view name() const override { return works_->name(); }
  DeviceInfo info() const override { return works_->info(); }
  std::vector<AttentionBackend> attention_backends() const override {
    return works_->attention_backends();
  }
  DType ActivationDType(DType compute) const override { return works_->ActivationDType(compute); }
  Fusions fusions() const override { return works_->fusions(); }
  Result<MemoryNeeds> Plan(const Program& program, const CompileOptions& options) const override {
    return works_->Plan(program, options);
  }
  Result<std::unique_ptr<Executable>> Compile(const Program& program,
                                              const CompileOptions& options) override {
    SPRY_ASSIGN_OR_RETURN(std::unique_ptr<Executable> works, works_->Compile(program, options));
    return std::unique_ptr<Executable>(
        std::make_unique<FailingExecutable>(std::move(works), fails_at_, fails_when_));
  }

 private:
  std::unique_ptr<Device> works_;
  uint64_t fails_at_;
  std::shared_future<void> fails_when_;
};

}  // namespace spry
