#include "tests/cuda/cuda_target.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "device/plugin.h"

namespace spry::testing {
namespace {

class CudaTestExecutable final : public TestExecutable {
 public:
  CudaTestExecutable(std::unique_ptr<Executable> executable, const Tensor& logits)
      : executable_(std::move(executable)), logits_(logits) {}

  Executable& executable() override { return *executable_; }
  std::vector<float> Read(const Tensor& tensor, int64_t rows) override {
    CHECK(tensor.buffer == logits_.buffer && tensor.offset == logits_.offset);
    std::vector<float> values(rows * tensor.width);
    const Status status = executable_->CopyLogits(values);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
    CHECK(status.ok());
    return values;
  }

 private:
  std::unique_ptr<Executable> executable_;
  Tensor logits_;
};

}  // namespace

Result<std::unique_ptr<Device>> LoadCuda(const GraphOptions& graphs) {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return LoadDevicePlugin("libspry_cuda.so", {folder}, {.graphs = graphs});
}

std::unique_ptr<TestExecutable> CudaTarget::Compile(const Program& program,
                                                    const StepLimits& limits) const {
  auto executable =
      device_->Compile(program, {.limits = limits, .attention_backend = attention_backend_});
  if (!executable.ok()) std::fprintf(stderr, "%s\n", executable.status().message().c_str());
  return std::make_unique<CudaTestExecutable>(*std::move(executable), program.logits);
}

Comparison CompareBits(std::span<const float> expected, std::span<const float> found) {
  if (expected.size() != found.size()) return {false, "sizes differ"};
  size_t differences = 0;
  size_t first = 0;
  double worst = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<uint32_t>(expected[i]) == std::bit_cast<uint32_t>(found[i])) continue;
    if (differences++ == 0) first = i;
    const double error = std::abs(double{expected[i]} - double{found[i]});
    worst = std::max(worst, std::isfinite(error) ? error : INFINITY);
  }
  if (differences == 0) return {true, fmt::format("{} values, equal bits", expected.size())};
  return {false,
          fmt::format("{} of {} values differ, by up to {:.3g}; the first is {}: {} but {}",
                      differences, expected.size(), worst, first, found[first], expected[first])};
}

}  // namespace spry::testing
