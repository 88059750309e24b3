#include <fmt/format.h>

#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"
#include "tests/device/cpu_targets.h"

namespace spry::testing {

void CheckRowOps(Report& report, const CheckOptions& options) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget cuda(*std::move(device));
  const CpuTarget reference = ReferenceTarget(options.threads);
  Random random(/*seed=*/5);
  std::vector<InputToken> tokens(kRowOpTokens);
  for (InputToken& token : tokens) {
    token = {.id = static_cast<int32_t>(random.Below(kRowOpTableRows)),
             .position = static_cast<int32_t>(random.Below(kRowOpPositions))};
  }
  for (const RowOpCase& op_case : RowOpCases()) {
    if (op_case.compute != DType::kF32) continue;
    RowOpRunner expected(op_case, reference);
    RowOpRunner found(op_case, cuda);
    std::vector<float> all_expected;
    std::vector<float> all_found;
    for (const int count : {1, 33, kRowOpTokens}) {
      const std::span<const InputToken> some(tokens.data(), count);
      const std::vector<float> a = expected.Run(some);
      const std::vector<float> b = found.Run(some);
      all_expected.insert(all_expected.end(), a.begin(), a.end());
      all_found.insert(all_found.end(), b.begin(), b.end());
    }
    const Comparison comparison = CompareBits(all_expected, all_found);
    report.Expect(comparison.equal, op_case.name, comparison.detail);
  }
}

}  // namespace spry::testing
