// Every kernel set gives the bits of the reference kernels, but for linear, where it rounds
// activations (avx2 and avx512, to int8) or weights too (amx, to bf16), and for attention in tiles
// (attention_test.cc holds their bits).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ops/embed.h"
#include "ops/sampling.h"
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
    if (op_case.name.starts_with("linear")) continue;
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
  const std::vector<std::vector<Piece>> steps = {{{0, 37}, {1, 1}, {2, 3}, {3, 505}},
                                                 {{0, 1}, {1, 150}, {2, 1}, {3, 1}},
                                                 {{0, 1}},
                                                 {{3, 1}},
                                                 {{0, 1}, {1, 23}, {3, 515}},
                                                 {{3, 1}, {2, 1}},
                                                 {{3, 7}, {1, 1}},
                                                 {{3, 1}, {1, 1}}};
  std::vector<float> output;
  for (const std::vector<Piece>& step : steps) {
    const std::vector<float> rows = runner.Step(step);
    output.insert(output.end(), rows.begin(), rows.end());
  }
  return output;
}

TEST(BitEqual, Attention) {
  const CpuTarget reference = ReferenceTarget(/*threads=*/2);
  for (const AttentionCase& attention_case : AttentionCases()) {
    AttentionRunner expecting(attention_case, reference, /*seed=*/3);
    const std::vector<float> expected = RunSteps(expecting);
    for (const int threads : {1, 2, 3}) {
      const auto targets = CpuTargets(threads);
      for (size_t i = 1; i < targets.size(); ++i) {
        if (TakesTiles(attention_case, *targets[i])) continue;
        AttentionRunner runner(attention_case, *targets[i], /*seed=*/4);
        EXPECT_TRUE(SameBits(RunSteps(runner), expected))
            << attention_case.name << ", " << targets[i]->name();
      }
    }
  }
}

// ---- sample ----

constexpr int kSampleRows = 64;

// Rows of logits with what makes picks hard: ties, peaks, flats, zeros of both signs, infinities.
std::vector<float> HardLogits(int64_t vocab_size, int kind, uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(vocab_size);
  for (float& logit : logits) {
    logit = random.Between(-6.0f, 6.0f);
    if (kind == 1) logit = std::round(logit);              // ties everywhere
    if (kind == 2) logit = random.Between(-0.01f, 0.01f);  // flat
    if (kind == 3) logit = std::round(logit) == 0 ? logit : -INFINITY;
    if (kind == 4) logit = random.Below(3) == 0 ? 0.0f : -0.0f;
    if (kind == 5) logit *= logit * logit;  // a few peaks
  }
  if (kind == 6) logits[random.Below(vocab_size)] = std::numeric_limits<float>::quiet_NaN();
  if (kind == 7) logits[vocab_size - 1] = INFINITY;
  return logits;
}
constexpr int kLogitKinds = 8;

RowParams RandomParams(int64_t vocab_size, Random& random) {
  RowParams params{.max_outputs = 100};
  params.seed = random.Next();
  if (random.Below(4) != 0) params.temperature = random.Between(0.05f, 3.0f);
  if (random.Below(3) == 0) params.top_k = static_cast<int32_t>(1 + random.Below(vocab_size));
  if (random.Below(6) == 0) params.top_k = static_cast<int32_t>(1 + random.Below(8));
  if (random.Below(3) == 0) params.top_p = random.Between(0.01f, 1.0f);
  if (random.Below(3) == 0) params.min_p = random.Between(0.0f, 0.5f);
  if (random.Below(3) == 0) params.num_logprobs = static_cast<int32_t>(random.Below(21));
  if (random.Below(4) == 0) {
    params.min_outputs = 5;
    params.num_stop_ids = static_cast<int32_t>(random.Below(kMaxStopTokenIds + 1));
    for (int i = 0; i < params.num_stop_ids; ++i) {
      params.stop_ids[i] = TokenId(static_cast<int32_t>(random.Below(vocab_size)));
    }
  }
  return params;
}

bool SameLogprob(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token && std::memcmp(&a.logprob, &b.logprob, sizeof(float)) == 0;
}

bool SameResult(const SampledResult& a, const SampledResult& b) {
  bool same = a.count == b.count && a.tokens[0] == b.tokens[0] && a.finish == b.finish &&
              a.fault == b.fault && a.logprobs.rank == b.logprobs.rank &&
              SameLogprob(a.logprobs.chosen, b.logprobs.chosen) &&
              a.logprobs.num_top == b.logprobs.num_top;
  for (int i = 0; same && i < a.logprobs.num_top; ++i) {
    same = SameLogprob(a.logprobs.top[i], b.logprobs.top[i]);
  }
  return same;
}

// Token id t of a one-token prompt brings row t of a table as its logits.
class SampleRunner {
 public:
  SampleRunner(const Target& target, const TestWeight& table) {
    Tracer tracer("sample", {.activation = target.ActivationDType(DType::kF32)});
    SampleAndAdvance(tracer, GatherSamples(tracer, Embed(tracer, table.handle)));
    program_ = std::make_unique<Program>(*tracer.Finish(table.handle.shape[1]));
    executable_ = target.Compile(*program_, {.max_tokens = kSampleRows,
                                             .max_rows = kSampleRows,
                                             .max_samples = kSampleRows,
                                             .max_blocks_per_row = 1,
                                             .num_blocks = 1});
  }
  std::vector<SampledResult> Run(std::span<const RowParams> params) {
    const int rows = static_cast<int>(params.size());
    const StepResult& result = executable_->RunStep([&](StepWriter& step) {
      for (int row = 0; row < rows; ++row) {
        const int32_t id = row % kLogitKinds;
        step.Join(row, params[row], /*num_outputs=*/row % 7);
        step.Prefill(row, {&id, 1}, 0, /*sample=*/true);
      }
    });
    return SampledResults(result, rows);
  }

 private:
  std::unique_ptr<Program> program_;
  std::unique_ptr<TestExecutable> executable_;
};

TEST(BitEqual, Sample) {
  Random random(5);
  for (const int64_t vocab_size : {1, 7, 16, 61, 1003, 4096, 5000}) {
    std::vector<float> values;
    for (int kind = 0; kind < kLogitKinds; ++kind) {
      const std::vector<float> row = HardLogits(vocab_size, kind, 60 + kind);
      values.insert(values.end(), row.begin(), row.end());
    }
    const TestWeight table = FloatWeight("logits", Shape{kLogitKinds, vocab_size}, values);
    std::vector<std::vector<RowParams>> steps;
    for (const int rows : {1, 2, 5, kSampleRows, kSampleRows, kSampleRows}) {
      steps.emplace_back();
      for (int row = 0; row < rows; ++row) {
        steps.back().push_back(RandomParams(vocab_size, random));
      }
    }
    SampleRunner reference(ReferenceTarget(/*threads=*/1), table);
    std::vector<std::vector<SampledResult>> expected;
    for (const auto& step : steps) expected.push_back(reference.Run(step));
    for (const int threads : {1, 2, 3}) {
      const auto targets = CpuTargets(threads);
      for (size_t t = 1; t < targets.size(); ++t) {
        SampleRunner runner(*targets[t], table);
        for (size_t i = 0; i < steps.size(); ++i) {
          const std::vector<SampledResult> results = runner.Run(steps[i]);
          for (size_t row = 0; row < results.size(); ++row) {
            EXPECT_TRUE(SameResult(results[row], expected[i][row]))
                << targets[t]->name() << ", " << vocab_size << " ids, step " << i << ", row " << row
                << ": " << results[row].tokens[0].value() << ", not "
                << expected[i][row].tokens[0].value();
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace spry::testing
