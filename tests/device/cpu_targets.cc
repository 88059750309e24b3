#include "tests/device/cpu_targets.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "device/cpu/kernel_sets.h"
#include "device/cpu/machine.h"

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

CpuTarget::CpuTarget(std::string name, KernelTable kernels,
                     std::vector<CpuAttentionBackend> attention, int threads)
    : name_(std::move(name)),
      kernels_(kernels),
      attention_(std::move(attention)),
      pool_(std::make_shared<WorkerPool>(threads)) {}

std::unique_ptr<CpuExecutable> CpuTarget::CompileCpu(const Program& program,
                                                     const StepLimits& limits) const {
  const AttentionConfig config = AttentionConfigOf(program, limits.block_size);
  size_t chosen = 0;
  while (!ReasonsAgainst(attention_[chosen].facts, config).empty()) ++chosen;
  Result<std::unique_ptr<CpuExecutable>> executable =
      CpuExecutable::Make(program, limits, pool_,
                          {.kernels = kernels_, .attention = attention_[chosen], .progress = {}});
  if (!executable.ok()) std::fprintf(stderr, "%s\n", executable.status().message().c_str());
  return *std::move(executable);
}

std::unique_ptr<TestExecutable> CpuTarget::Compile(const Program& program,
                                                   const StepLimits& limits) const {
  return std::make_unique<CpuTestExecutable>(CompileCpu(program, limits));
}

CpuTarget ReferenceTarget(int threads) {
  return CpuTarget(fmt::format("reference, {} threads", threads), ReferenceKernels(),
                   {ReferenceAttention()}, threads);
}

std::vector<std::unique_ptr<Target>> CpuTargets(int threads) {
  std::vector<std::unique_ptr<Target>> targets;
  targets.push_back(std::make_unique<CpuTarget>(ReferenceTarget(threads)));
  KernelTable kernels = ReferenceKernels();
  const auto add = [&](const char* name, void (*use)(KernelTable&),
                       const CpuAttentionBackend& attention) {
    use(kernels);
    constexpr int kLinear = static_cast<int>(OpId::kLinear);
    kernels[kLinear] = ReferenceKernels()[kLinear];
    targets.push_back(std::make_unique<CpuTarget>(
        fmt::format("{}, {} threads", name, threads), kernels,
        std::vector<CpuAttentionBackend>{attention, ReferenceAttention()}, threads));
  };
  const CpuFeatures features = DetectCpuFeatures();
  if (features.avx2) add("avx2", UseAvx2Kernels, Avx2Attention());
  if (features.avx512) add("avx512", UseAvx512Kernels, Avx512Attention());
  return targets;
}

}  // namespace spry::testing
