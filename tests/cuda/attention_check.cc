#include <fmt/format.h>

#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"
#include "tests/device/attention_harness.h"
#include "tests/device/cpu_targets.h"

namespace spry::testing {
namespace {

std::vector<int32_t> Ids(uint64_t seed, int count) {
  Random random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(kAttentionTableRows));
  return ids;
}

// Three rows of different lengths read in pieces that stop on and beside the segment borders at
// 512 and 1024, decode steps among them, and one row that is padding.
std::vector<float> RunCase(const AttentionCase& attention_case, const Target& target) {
  AttentionRunner runner(attention_case, target, /*seed=*/9);
  runner.Start(0, Ids(1, 1100));
  runner.Start(1, Ids(2, 530));
  runner.Start(2, Ids(3, 40));
  runner.Start(5, Ids(4, 40), /*finished=*/true);
  const std::vector<std::vector<Piece>> steps = {
      {{0, 1}},
      {{0, 1}, {2, 7}},
      {{2, 1}, {0, 510}, {1, 100}, {5, 3}},
      {{2, 1}, {1, 411}},
      {{2, 1}, {0, 1}, {1, 1}, {5, 1}},
      {{0, 511}, {1, 18}},
      {{0, 1}, {2, 30}},
      {{0, 75}},
  };
  std::vector<float> outputs;
  for (const std::vector<Piece>& step : steps) {
    const std::vector<float> output = runner.Step(step);
    outputs.insert(outputs.end(), output.begin(), output.end());
  }
  return outputs;
}

}  // namespace

void CheckAttention(Report& report, const CheckOptions& options) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget cuda(*std::move(device));
  const CpuTarget reference = ReferenceTarget(options.threads);
  for (const AttentionCase& attention_case : AttentionCases()) {
    const Comparison comparison =
        CompareBits(RunCase(attention_case, reference), RunCase(attention_case, cuda));
    report.Expect(comparison.equal, "attention, " + attention_case.name, comparison.detail);
  }
}

}  // namespace spry::testing
