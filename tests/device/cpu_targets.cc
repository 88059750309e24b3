#include "tests/device/cpu_targets.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace spry::testing {
namespace {

class CpuTestExecutable final : public TestExecutable {
 public:
  explicit CpuTestExecutable(std::unique_ptr<CpuExecutable> executable)
      : executable_(std::move(executable)) {}

  Executable& executable() override { return *executable_; }
  std::vector<float> Read(const Tensor& tensor, int64_t rows) override {
    const Matrix matrix = executable_->Resolve(tensor);
    std::vector<float> values(rows * matrix.width);
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(values.data() + r * matrix.width, matrix.Row(r), matrix.width * sizeof(float));
    }
    return values;
  }

 private:
  std::unique_ptr<CpuExecutable> executable_;
};

}  // namespace

CpuTarget::CpuTarget(const KernelChoice& kernels, int threads)
    : name_(fmt::format("{}, {} threads", kernels.name, threads)),
      kernels_(kernels),
      quantizes_activations_(kernels.name != "reference"),
      pool_(*WorkerPool::Create(threads)) {}

std::unique_ptr<CpuExecutable> CpuTarget::CompileCpu(const Program& program,
                                                     const StepLimits& limits) const {
  const AttentionConfig config = AttentionConfigOf(program, limits.block_size);
  size_t chosen = 0;
  while (!ReasonsAgainst(kernels_.attention[chosen].facts, config).empty()) ++chosen;
  Result<std::unique_ptr<CpuExecutable>> executable = CpuExecutable::Make(
      program, limits, pool_,
      {.kernels = kernels_.table, .attention = kernels_.attention[chosen], .progress = {}});
  if (!executable.ok()) std::fprintf(stderr, "%s\n", executable.status().message().c_str());
  return *std::move(executable);
}

std::unique_ptr<TestExecutable> CpuTarget::Compile(const Program& program,
                                                   const StepLimits& limits) const {
  return std::make_unique<CpuTestExecutable>(CompileCpu(program, limits));
}

CpuTarget ReferenceTarget(int threads) {
  return CpuTarget(*ChooseKernels(CpuIsa::kReference, DetectCpuFeatures()), threads);
}

std::vector<std::unique_ptr<Target>> CpuTargets(int threads) {
  const CpuFeatures features = DetectCpuFeatures();
  std::vector<std::unique_ptr<Target>> targets;
  for (const CpuIsa isa : {CpuIsa::kReference, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx}) {
    const Result<KernelChoice> kernels = ChooseKernels(isa, features);
    if (!kernels.ok()) continue;  // not on this machine
    targets.push_back(std::make_unique<CpuTarget>(*kernels, threads));
  }
  return targets;
}

}  // namespace spry::testing
