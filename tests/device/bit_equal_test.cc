// Every kernel set gives the bits of the reference kernels (linear apart, which has tests of its
// own).
#include <gtest/gtest.h>

#include <cstring>

#include "tests/device/attention_harness.h"
#include "tests/device/cpu_targets.h"
#include "tests/device/op_harness.h"

namespace spry::testing {
namespace {

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Linear is the reference's in all of them: faster ones may round their input rows.
std::vector<std::unique_ptr<Target>> RowOpTargets() {
  constexpr int kLinear = static_cast<int>(OpId::kLinear);
  std::vector<std::unique_ptr<Target>> targets;
  for (const CpuIsa isa : {CpuIsa::kReference, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    Result<KernelChoice> kernels = ChooseKernels(isa, DetectCpuFeatures());
    if (!kernels.ok()) continue;  // not on this machine
    kernels->table[kLinear] = ReferenceKernels()[kLinear];
    targets.push_back(std::make_unique<CpuTarget>(*kernels, /*threads=*/2));
  }
  return targets;
}

TEST(BitEqual, RowOps) {
  Random random(1);
  std::vector<InputToken> tokens(40);
  for (InputToken& token : tokens) {
    token = {.id = static_cast<int32_t>(random.Below(kRowOpTableRows)),
             .position = static_cast<int32_t>(random.Below(kRowOpPositions))};
  }
  const auto targets = RowOpTargets();
  for (const RowOpCase& op_case : RowOpCases()) {
    const std::vector<float> expected = RowOpRunner(op_case, *targets[0]).Run(tokens);
    for (size_t i = 1; i < targets.size(); ++i) {
      EXPECT_TRUE(SameBits(RowOpRunner(op_case, *targets[i]).Run(tokens), expected))
          << op_case.name << ", " << targets[i]->name();
    }
  }
}

// Pieces of several rows, a padding row among them, past two segments.
std::vector<float> RunSteps(AttentionRunner& runner) {
  constexpr bool kFinished = true;
  constexpr int kRows = 4;
  Random random(2);
  for (int row = 0; row < kRows; ++row) {
    std::vector<int32_t> ids(kAttentionMaxTokens);
    for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(kAttentionTableRows));
    runner.Start(row, ids, row == 2 && kFinished);
  }
  const std::vector<std::vector<Piece>> steps = {{{0, 37}, {1, 1}, {2, 3}, {3, 600}},
                                                 {{0, 1}, {1, 500}, {2, 1}, {3, 1}},
                                                 {{0, 1}},
                                                 {{3, 1}},
                                                 {{0, 1}, {1, 23}, {3, 430}},
                                                 {{3, 1}, {2, 1}},
                                                 {{3, 1}, {1, 1}}};
  std::vector<float> output;
  for (const std::vector<Piece>& step : steps) {
    const std::vector<float> rows = runner.Step(step);
    output.insert(output.end(), rows.begin(), rows.end());
  }
  return output;
}

TEST(BitEqual, Attention) {
  for (const int threads : {1, 2, 3}) {
    const auto targets = CpuTargets(threads);
    for (const AttentionCase& attention_case : AttentionCases()) {
      AttentionRunner reference(attention_case, *targets[0], /*seed=*/3);
      const std::vector<float> expected = RunSteps(reference);
      for (size_t i = 1; i < targets.size(); ++i) {
        AttentionRunner runner(attention_case, *targets[i], /*seed=*/4);
        EXPECT_TRUE(SameBits(RunSteps(runner), expected))
            << attention_case.name << ", " << targets[i]->name();
      }
    }
  }
}

}  // namespace
}  // namespace spry::testing
