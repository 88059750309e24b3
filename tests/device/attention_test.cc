// Attention and its cache: right against a naive softmax in double, and the same bits however a
// sequence is cut into steps, whatever shares them, wherever its blocks lie.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/embed.h"
#include "tests/device/attention_harness.h"
#include "tests/device/cpu_targets.h"

namespace spry::testing {
namespace {

constexpr bool kFinished = true;

// The output of a sequence alone, in pieces of these sizes (the last is whatever is left).
std::vector<float> RunAlone(AttentionRunner& runner, int row, const std::vector<int32_t>& ids,
                            std::vector<int> sizes) {
  runner.Start(row, ids);
  std::vector<float> output;
  int left = static_cast<int>(ids.size());
  for (size_t i = 0; left > 0; ++i) {
    const int count = i < sizes.size() ? std::min(sizes[i], left) : left;
    const Piece piece{.row = row, .count = count};
    const std::vector<float> rows = runner.Step({&piece, 1});
    output.insert(output.end(), rows.begin(), rows.end());
    left -= count;
  }
  return output;
}

// Several sequences at once, each step taking random pieces of some of them beside a padding row.
std::vector<std::vector<float>> RunMixed(AttentionRunner& runner,
                                         const std::vector<std::vector<int32_t>>& sequences,
                                         uint64_t seed) {
  Random random(seed);
  const int padding_row = static_cast<int>(sequences.size());
  runner.Start(padding_row, SomeIds(kAttentionMaxTokens, seed), kFinished);
  std::vector<std::vector<float>> outputs(sequences.size());
  std::vector<int> done(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) runner.Start(static_cast<int>(i), sequences[i]);
  while (true) {
    std::vector<Piece> pieces = {{.row = padding_row, .count = 1}};
    for (size_t i = 0; i < sequences.size(); ++i) {
      const int left = static_cast<int>(sequences[i].size()) - done[i];
      if (left == 0 || random.Below(4) == 0) continue;
      const int most = random.Below(2) == 0 ? 1 : 90;
      const int count = static_cast<int>(std::min<int64_t>(left, 1 + random.Below(most)));
      pieces.push_back({.row = static_cast<int>(i), .count = count});
      done[i] += count;
    }
    const std::vector<float> rows = runner.Step(pieces);
    const int64_t width = runner.output_width();
    auto at = rows.begin();
    for (const Piece& piece : pieces) {
      const auto end = at + piece.count * width;
      if (piece.row == padding_row) {
        EXPECT_TRUE(std::all_of(at, end, [](float value) { return value == 0.0f; }));
      } else {
        outputs[piece.row].insert(outputs[piece.row].end(), at, end);
      }
      at = end;
    }
    size_t finished = 0;
    for (size_t i = 0; i < sequences.size(); ++i) finished += done[i] == std::ssize(sequences[i]);
    if (finished == sequences.size()) return outputs;
  }
}

double WorstError(const AttentionRunner& runner, const std::vector<int32_t>& ids,
                  const std::vector<float>& output) {
  double worst = 0;
  const int64_t width = runner.output_width();
  for (int t = 0; t < std::ssize(ids); ++t) {
    const std::vector<double> expected = runner.Expected(ids, t);
    for (int64_t i = 0; i < width; ++i) {
      worst = std::max(worst, std::abs(output[t * width + i] - expected[i]));
    }
  }
  return worst;
}

// Values are up to 1.5 in size and averages of them keep that scale. To round a query and a weight
// to bf16 is to move each by up to 2^-9 of itself; 3e-3 is the most seen.
double MaxError(const AttentionCase& attention_case, const Target& target) {
  return TakesTiles(attention_case, target) ? 8e-3 : 4e-6;
}

TEST(Attention, AgreesWithDouble) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const AttentionCase& attention_case : AttentionCases()) {
      AttentionRunner runner(attention_case, *target, /*seed=*/1);
      const std::vector<int32_t> ids = SomeIds(/*count=*/300, /*seed=*/2);
      const std::vector<float> output = RunAlone(runner, /*row=*/0, ids, {});
      EXPECT_LT(WorstError(runner, ids, output), MaxError(attention_case, *target))
          << attention_case.name << ", " << target->name();
    }
  }
}

TEST(Attention, AgreesWithDoubleOverSeveralSegments) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const AttentionCase& attention_case : AttentionCases()) {
      if (attention_case.window == 0 && !attention_case.sinks && !attention_case.alibi) continue;
      AttentionRunner runner(attention_case, *target, /*seed=*/3);
      std::vector<int32_t> ids = SomeIds(/*count=*/1100, /*seed=*/4);
      const std::vector<float> output = RunAlone(runner, /*row=*/0, ids, {});
      const int64_t width = runner.output_width();
      for (const int t : {510, 511, 512, 513, 700, 1023, 1024, 1099}) {
        const std::vector<double> expected = runner.Expected(ids, t);
        for (int64_t i = 0; i < width; ++i) {
          ASSERT_NEAR(output[t * width + i], expected[i], MaxError(attention_case, *target))
              << attention_case.name << ", " << target->name() << ", position " << t;
        }
      }
    }
  }
}

// At the ends of tiles, runs and segments, and here and there.
TEST(Attention, TilesGiveTheBitsOfTheScalarCode) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const AttentionCase& attention_case : AttentionCases()) {
      if (!TakesTiles(attention_case, *target)) continue;
      AttentionRunner runner(attention_case, *target, /*seed=*/26);
      const std::vector<int32_t> ids = SomeIds(/*count=*/1030, /*seed=*/27);
      const std::vector<float> output = RunAlone(runner, /*row=*/0, ids, {600, 1});
      const int64_t width = runner.output_width();
      for (const int t : {0,   1,   2,   14,  15,  16,  31,  32,  100, 127, 128,  129,
                          150, 255, 333, 384, 511, 512, 513, 600, 639, 640, 1023, 1029}) {
        const std::vector<float> expected = runner.ExpectedOfTiles(ids, t);
        ASSERT_EQ(std::memcmp(output.data() + t * width, expected.data(), width * sizeof(float)), 0)
            << attention_case.name << ", " << target->name() << ", position " << t;
      }
    }
  }
}

TEST(Attention, MixedStepsGiveTheBitsOfSequencesAlone) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const AttentionCase& attention_case : AttentionCases()) {
      const std::vector<std::vector<int32_t>> sequences = {
          SomeIds(33, 5), SomeIds(1, 6), SomeIds(150, 7), SomeIds(64, 8), SomeIds(97, 9)};
      AttentionRunner mixed(attention_case, *target, /*seed=*/10);
      AttentionRunner alone(attention_case, *target, /*seed=*/11);  // other blocks
      const std::vector<std::vector<float>> outputs = RunMixed(mixed, sequences, /*seed=*/12);
      for (size_t i = 0; i < sequences.size(); ++i) {
        EXPECT_EQ(outputs[i], RunAlone(alone, /*row=*/7, sequences[i], {}))
            << attention_case.name << ", " << target->name() << ", sequence " << i;
      }
    }
  }
}

TEST(Attention, CutsOfASequenceDoNotChangeBits) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const AttentionCase& attention_case : AttentionCases()) {
      AttentionRunner runner(attention_case, *target, /*seed=*/13);
      const std::vector<int32_t> ids = SomeIds(/*count=*/40, /*seed=*/14);
      const std::vector<float> whole = RunAlone(runner, /*row=*/0, ids, {});
      for (int cut = 1; cut < 40; ++cut) {
        ASSERT_EQ(RunAlone(runner, /*row=*/1, ids, {cut}), whole)
            << attention_case.name << ", " << target->name() << ", cut at " << cut;
      }
      const std::vector<int> ones(40, 1);
      ASSERT_EQ(RunAlone(runner, /*row=*/2, ids, ones), whole)
          << attention_case.name << ", " << target->name() << ", token by token";
    }
  }
}

TEST(Attention, CutsNearSegmentsDoNotChangeBits) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    for (const char* name :
         {"grouped, blocks of 16", "window 600", "grouped 8, window 511", "grouped 8, window 513",
          "alibi", "sinks", "all at once", "tiles, values narrower",
          "tiles, window 600, soft cap, alibi, sinks"}) {
      for (const AttentionCase& attention_case : AttentionCases()) {
        if (attention_case.name != name) continue;
        AttentionRunner runner(attention_case, *target, /*seed=*/15);
        const std::vector<int32_t> ids = SomeIds(/*count=*/700, /*seed=*/16);
        const std::vector<float> whole = RunAlone(runner, /*row=*/0, ids, {});
        for (const int cut : {1, 16, 500, 511, 512, 513, 520, 699}) {
          EXPECT_EQ(RunAlone(runner, /*row=*/1, ids, {cut}), whole)
              << name << ", " << target->name() << ", cut at " << cut;
        }
      }
    }
  }
}

TEST(Attention, ThreadsDoNotChangeBits) {
  const std::vector<int32_t> ids = SomeIds(/*count=*/70, /*seed=*/17);
  const auto one = CpuTargets(/*threads=*/1);
  for (const int threads : {2, 3}) {
    const auto several = CpuTargets(threads);
    for (size_t i = 0; i < one.size(); ++i) {
      for (const AttentionCase& attention_case : AttentionCases()) {
        AttentionRunner alone(attention_case, *one[i], /*seed=*/18);
        AttentionRunner shared(attention_case, *several[i], /*seed=*/18);
        EXPECT_EQ(RunAlone(shared, /*row=*/0, ids, {30, 1, 1}),
                  RunAlone(alone, /*row=*/0, ids, {30, 1, 1}))
            << attention_case.name << ", " << several[i]->name();
      }
    }
  }
}

// In f32, and in tiles of bf16.
std::vector<AttentionCase> WindowsOverNans() {
  std::vector<AttentionCase> cases;
  for (const int window : {1, 5, 16, 33, 520}) {
    cases.push_back({.name = "window " + std::to_string(window),
                     .num_heads = 6,
                     .num_kv_heads = 2,
                     .window = window,
                     .last_id_is_nan = true});
    cases.push_back(cases.back());
    cases.back().head_dim = cases.back().v_head_dim = 32;
    cases.back().kv = DType::kBF16;
  }
  return cases;
}

// What a window hides is not weighed with 0, which would keep its NaNs, but not weighed at all.
TEST(Attention, WhatTheWindowHidesMayBeNan) {
  const auto nan_id = static_cast<int32_t>(kAttentionTableRows - 1);
  for (const auto& target : CpuTargets(/*threads=*/2)) {
    for (const AttentionCase& attention_case : WindowsOverNans()) {
      const int window = attention_case.window;
      AttentionRunner runner(attention_case, *target, /*seed=*/22);
      std::vector<int32_t> ids = SomeIds(/*count=*/1100, /*seed=*/23);
      for (int32_t& id : ids) id = std::min(id, nan_id - 1);
      constexpr int kNans = 130;
      std::fill_n(ids.begin(), kNans, nan_id);
      const std::vector<float> whole = RunAlone(runner, /*row=*/0, ids, {});
      const std::vector<float> cut = RunAlone(runner, /*row=*/1, ids, {700, 1, 1, 350, 1, 1});
      const auto sees_nan = [&](int64_t position) { return position - window + 1 < kNans; };
      for (int64_t i = 0; i < std::ssize(whole); ++i) {
        const int64_t position = i / runner.output_width();
        ASSERT_EQ(std::isnan(whole[i]), sees_nan(position))
            << attention_case.name << ", " << target->name() << ", position " << position;
        ASSERT_TRUE(cut[i] == whole[i] || sees_nan(position));
      }
    }
  }
}

TEST(Attention, WeightsHaveAValueForEachHead) {
  const TestWeight few = RandomWeight("model.sinks", DType::kF32, Shape{3}, 1.0f, 24);
  const TestWeight table = RandomWeight("qkv", DType::kF32, Shape{8, 16}, 1.0f, 25);
  for (const bool as_sinks : {false, true}) {
    Tracer tracer("attention", {});
    const Tensor x = Embed(tracer, table.handle);
    AttentionWeights weights;
    (as_sinks ? weights.sinks : weights.alibi_slopes) = few.handle;
    Attention(tracer, x, x, x, {.num_heads = 4, .num_kv_heads = 4, .head_dim = 4, .v_head_dim = 4},
              weights);
    const Result<Program> program = tracer.Finish(8);
    ASSERT_FALSE(program.ok());
    for (const char* part : {"attention", "H", "4", "model.sinks", "3"}) {
      EXPECT_NE(program.status().message().find(part), std::string::npos)
          << program.status().message();
    }
  }
}

// A window of 4 is 4 keys, the token itself among them, in prefill, chunks and decode alike
// (faults of the kind of transformers #39408).
TEST(Attention, WindowCountsTheTokenItself) {
  for (const auto& target : CpuTargets(/*threads=*/1)) {
    AttentionCase window{.name = "window 4", .window = 4};
    window.scale = 0.0f;  // every key weighs the same
    AttentionRunner runner(window, *target, /*seed=*/19);
    AttentionCase everything = window;
    everything.window = 0;
    AttentionRunner reference(everything, *target, /*seed=*/20);
    const std::vector<int32_t> ids = SomeIds(/*count=*/6, /*seed=*/21);
    const std::vector<int32_t> last_four(ids.begin() + 2, ids.end());
    const std::vector<double> mean = reference.Expected(last_four, 3);
    const std::vector<std::vector<int>> schedules = {{6}, {4}, {5}, {3, 2}, {1, 1, 1, 1, 1, 1}};
    for (const std::vector<int>& schedule : schedules) {
      const std::vector<float> output = RunAlone(runner, /*row=*/0, ids, schedule);
      const float* last = output.data() + 5 * runner.output_width();
      for (int64_t i = 0; i < runner.output_width(); ++i) EXPECT_NEAR(last[i], mean[i], 1e-6);
    }
  }
}

}  // namespace
}  // namespace spry::testing
