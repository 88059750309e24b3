// Every op that treats each row alone: right against double, and the same bits whatever shares its
// step, its kernel's fusion or its threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/device/cpu_targets.h"
#include "tests/device/op_harness.h"

namespace spry::testing {
namespace {

std::vector<InputToken> SomeTokens(int count, uint64_t seed) {
  Random random(seed);
  std::vector<InputToken> tokens(count);
  for (InputToken& token : tokens) {
    token = {.id = static_cast<int32_t>(random.Below(kRowOpTableRows)),
             .position = static_cast<int32_t>(random.Below(kRowOpPositions))};
  }
  return tokens;
}

// Half a step of 8 bits on each activation, which are at most twice their mean: below 1% in all.
constexpr double kQuantizedError = 0.01 / 0x1p-24;

void ExpectAgreement(const RowOpCase& op_case, const Target& target) {
  RowOpRunner runner(op_case, target);
  const std::vector<InputToken> tokens = SomeTokens(/*count=*/70, /*seed=*/1);
  const std::vector<float> output = runner.Run(tokens);
  const int64_t width = runner.output_width();
  double worst = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const std::vector<ExpectedValue> expected =
        op_case.expect(runner.Inputs(tokens[t].id), tokens[t]);
    ASSERT_EQ(static_cast<int64_t>(expected.size()), width) << op_case.name;
    for (int64_t i = 0; i < width; ++i) {
      const double error = std::abs(output[t * width + i] - expected[i].value);
      worst = std::max(worst, error / (std::max(expected[i].magnitude, 1e-30) * 0x1p-24));
    }
  }
  const bool coarse = op_case.quantized && target.QuantizesActivations();
  EXPECT_LE(worst, coarse ? kQuantizedError : op_case.max_error)
      << op_case.name << ", " << target.name();
}

TEST(RowOps, AgreeWithDouble) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const RowOpCase& op_case : RowOpCases()) ExpectAgreement(op_case, *target);
  }
}

// Bits are compared in the release build. Under a sanitizer memory is watched, at a tenth of the
// speed: some counts of rows are enough.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kCountStep = 9;
#else
constexpr int kCountStep = 1;
#endif

// Steps of 1..130, 257 and 512 rows, each row of which must equal the same row alone.
void ExpectRowsIndependent(const RowOpCase& op_case, const Target& target) {
  constexpr int kDistinct = 61;
  const std::vector<InputToken> distinct = SomeTokens(kDistinct, /*seed=*/2);
  RowOpRunner runner(op_case, target);
  std::vector<std::vector<float>> alone;
  for (const InputToken& token : distinct) alone.push_back(runner.Run({&token, 1}));
  std::vector<int> counts = {257, kRowOpTokens};
  for (int count = 1; count <= 130; count += kCountStep) counts.push_back(count);
  for (const int count : counts) {
    std::vector<InputToken> tokens;
    for (int t = 0; t < count; ++t) tokens.push_back(distinct[(count * 7 + t) % kDistinct]);
    const std::vector<float> together = runner.Run(tokens);
    for (int t = 0; t < count; ++t) {
      const std::vector<float>& expected = alone[(count * 7 + t) % kDistinct];
      ASSERT_EQ(0, std::memcmp(together.data() + t * expected.size(), expected.data(),
                               expected.size() * sizeof(float)))
          << op_case.name << ", " << target.name() << ", row " << t << " of " << count;
    }
  }
}

// The row-function rule.
TEST(RowOps, RowsDoNotDependOnTheirNeighbours) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const RowOpCase& op_case : RowOpCases()) ExpectRowsIndependent(op_case, *target);
  }
}

TEST(RowOps, ThreadsDoNotChangeBits) {
  const std::vector<InputToken> tokens = SomeTokens(/*count=*/33, /*seed=*/3);
  for (const int threads : {2, 3}) {
    const auto one = CpuTargets(/*threads=*/1), several = CpuTargets(threads);
    for (size_t i = 0; i < one.size(); ++i) {
      for (const RowOpCase& op_case : RowOpCases()) {
        const std::vector<float> expected = RowOpRunner(op_case, *one[i]).Run(tokens);
        EXPECT_EQ(RowOpRunner(op_case, *several[i]).Run(tokens), expected)
            << op_case.name << ", " << several[i]->name();
      }
    }
  }
}

TEST(RowOps, FusionDoesNotChangeBits) {
  const std::vector<InputToken> tokens = SomeTokens(/*count=*/20, /*seed=*/4);
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const RowOpCase& op_case : RowOpCases()) {
      const std::vector<float> fused = RowOpRunner(op_case, *target, /*fuse=*/true).Run(tokens);
      EXPECT_EQ(RowOpRunner(op_case, *target, /*fuse=*/false).Run(tokens), fused)
          << op_case.name << ", " << target->name();
    }
  }
}

}  // namespace
}  // namespace spry::testing
