// The CPU's kernel tables as targets of the op cases.
#pragma once

#include <memory>
#include <vector>

#include "device/cpu/cpu_executable.h"
#include "tests/device/op_harness.h"

namespace spry::testing {

class CpuTarget final : public Target {
 public:
  // Attention is the first backend (best first) that serves the program.
  CpuTarget(std::string name, KernelTable kernels, std::vector<CpuAttentionBackend> attention,
            int threads);

  std::string name() const override { return name_; }
  DType ActivationDType(DType) const override { return DType::kF32; }
  std::unique_ptr<TestExecutable> Compile(const Program& program,
                                          const StepLimits& limits) const override;
  std::unique_ptr<CpuExecutable> CompileCpu(const Program& program, const StepLimits& limits) const;

 private:
  std::string name_;
  KernelTable kernels_;
  std::vector<CpuAttentionBackend> attention_;
  std::shared_ptr<WorkerPool> pool_;
};

CpuTarget ReferenceTarget(int threads);

// Every kernel table that this build has and this machine can run; the reference first. Linear is
// the reference's in all of them: its kernels round activations and have tests of their own.
std::vector<std::unique_ptr<Target>> CpuTargets(int threads);

}  // namespace spry::testing
