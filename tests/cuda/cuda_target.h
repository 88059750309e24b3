// The card as a target of the op cases, and the numbers that two targets are compared by.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "device/device.h"
#include "device/graph_options.h"
#include "tests/device/op_harness.h"

namespace spry::testing {

// The plug-in beside this program.
Result<std::unique_ptr<Device>> LoadCuda(const GraphOptions& graphs);

// Reads the logits tensor alone, which is what the row op cases ask for.
class CudaTarget final : public Target {
 public:
  // `attention_backend` empty: the best.
  explicit CudaTarget(std::unique_ptr<Device> device, std::string attention_backend = {})
      : device_(std::move(device)), attention_backend_(std::move(attention_backend)) {}

  std::string name() const override { return "cuda"; }
  DType ActivationDType(DType compute) const override { return device_->ActivationDType(compute); }
  bool QuantizesActivations() const override { return false; }
  std::unique_ptr<TestExecutable> Compile(const Program& program,
                                          const StepLimits& limits) const override;

 private:
  std::unique_ptr<Device> device_;
  std::string attention_backend_;
};

// "512 values, all equal bits" or where the first difference is and how many there are.
struct Comparison {
  bool equal = true;
  std::string detail;
};
Comparison CompareBits(std::span<const float> expected, std::span<const float> found);

}  // namespace spry::testing
