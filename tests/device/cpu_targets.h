// The CPU's kernel tables as targets of the op cases.
#pragma once

#include <memory>
#include <vector>

#include "device/cpu/cpu_executable.h"
#include "device/cpu/kernel_choice.h"
#include "tests/device/op_harness.h"

namespace spry::testing {

class CpuTarget final : public Target {
 public:
  // Attention is the first backend (best first) that serves the program.
  CpuTarget(const KernelChoice& kernels, int threads);

  std::string name() const override { return name_; }
  DType ActivationDType(DType) const override { return DType::kF32; }
  bool QuantizesActivations() const override { return quantizes_activations_; }
  std::unique_ptr<TestExecutable> Compile(const Program& program,
                                          const StepLimits& limits) const override;
  std::unique_ptr<CpuExecutable> CompileCpu(const Program& program, const StepLimits& limits) const;

 private:
  std::string name_;
  KernelChoice kernels_;
  bool quantizes_activations_ = false;
  std::shared_ptr<WorkerPool> pool_;
};

CpuTarget ReferenceTarget(int threads);

// Every kernel table that this build has and this machine can run.
std::vector<std::unique_ptr<Target>> CpuTargets(int threads);

}  // namespace spry::testing
