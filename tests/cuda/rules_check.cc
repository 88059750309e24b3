#include <fmt/format.h>

#include <cmath>

#include "ops/embed.h"
#include "ops/logit_rules.h"
#include "ops/sampling.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"
#include "tests/device/cpu_targets.h"
#include "tests/device/random_rules.h"

namespace spry::testing {
namespace {

constexpr int kRows = 64;
constexpr int kSlots = 40;
constexpr int kDecodeSteps = 5;

struct Round {
  std::vector<RuledRequest> requests;  // by row
  std::vector<int> slots;              // by row; -1: none, it runs without rules
};

Round MakeRound(int round, int vocab_size) {
  Random random(1000 + round);
  Round made;
  int next_slot = round % 3;  // not always the same slots
  for (int row = 0; row < kRows; ++row) {
    RuledRequest request = RandomRuled(random, vocab_size);
    RowParams& params = request.params;
    params.seed = random.Next();
    params.max_outputs = 1000;
    params.temperature = random.Below(3) == 0 ? 0.0f : random.Between(0.3f, 2.0f);
    if (random.Below(3) == 0) params.top_k = static_cast<int32_t>(1 + random.Below(40));
    if (random.Below(3) == 0) params.top_p = random.Between(0.05f, 1.0f);
    if (random.Below(3) == 0) params.num_logprobs = 3;
    const bool ruled = random.Below(3) != 0 && next_slot < kSlots;
    made.slots.push_back(ruled ? next_slot++ : -1);
    made.requests.push_back(std::move(request));
  }
  return made;
}

// The joins of a round and some decode steps, with masks asked again before each.
std::vector<RowResult> RunRound(TestExecutable& executable, Round round, int vocab_size) {
  const RuleSlotLayout layout = MakeRuleSlotLayout(vocab_size);
  std::vector<RowResult> results;
  for (int step = 0; step <= kDecodeSteps; ++step) {
    const StepResult& result = executable.RunStep([&](StepWriter& writer) {
      for (int row = 0; row < kRows; ++row) {
        const RuledRequest& request = round.requests[row];
        const int slot = round.slots[row];
        const RuleSlot image = slot < 0 ? RuleSlot() : executable.executable().RuleImage(slot);
        if (step > 0) {
          if (slot >= 0 && request.rules.mask != nullptr) {
            WriteAllowed(layout, request.rules, request.outputs, image);
            writer.RefreshAllowed(slot);
          }
          writer.Decode(row);
          continue;
        }
        if (slot >= 0) {
          WriteRuleImage(layout, request.rules, request.prompt, request.outputs, image);
        }
        writer.Join(row, request.params, static_cast<int>(request.outputs.size()), slot);
        writer.Prefill(row, {&row, 1}, /*start=*/0, /*sample=*/true);
      }
    });
    for (int row = 0; row < kRows; ++row) {
      const RowResult& of_row = result.rows[row];
      results.push_back(of_row);
      if (of_row.count > 0) round.requests[row].outputs.push_back(of_row.tokens[0]);
    }
  }
  return results;
}

std::string Difference(const std::vector<RowResult>& expected,
                       const std::vector<RowResult>& found) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const RowResult& a = expected[i];
    const RowResult& b = found[i];
    const bool same = a.count == b.count && a.fault == b.fault && a.finish == b.finish &&
                      (a.count == 0 || a.tokens[0] == b.tokens[0]);
    if (same) continue;
    return fmt::format("step {}, row {}: token {}, fault {}, but {} and {}", i / kRows, i % kRows,
                       b.tokens[0].value(), static_cast<int>(b.fault), a.tokens[0].value(),
                       static_cast<int>(a.fault));
  }
  return "";
}

// Token t brings row t as its logits.
TestWeight Table(int vocab_size) {
  Random random(/*seed=*/5);
  std::vector<float> logits(static_cast<size_t>(vocab_size) * vocab_size);
  for (float& logit : logits) logit = random.Between(-6.0f, 6.0f);
  return FloatWeight("logits", Shape{vocab_size, vocab_size}, std::move(logits));
}

}  // namespace

void CheckRules(Report& report, const CheckOptions& options) {
  const CudaTarget cuda(*LoadCuda({.mode = GraphMode::kFull}));
  const CpuTarget reference = ReferenceTarget(options.threads);
  for (const int vocab_size : {64, 2500}) {
    const TestWeight logits = Table(vocab_size);
    Tracer tracer("sampler", {.max_length = 16});
    SampleAndAdvance(tracer, GatherSamples(tracer, Embed(tracer, logits.handle)));
    const Program program = *tracer.Finish(vocab_size);
    const StepLimits limits{.max_tokens = kRows,
                            .max_rows = kRows,
                            .max_samples = kRows,
                            .max_blocks_per_row = 1,
                            .num_blocks = 1,
                            .max_rule_slots = kSlots,
                            .vocab_size = vocab_size};
    const auto expected = reference.Compile(program, limits);
    const auto found = cuda.Compile(program, limits);
    std::string difference;
    constexpr int kRounds = 30;
    for (int r = 0; r < kRounds && difference.empty(); ++r) {
      const Round round = MakeRound(r, vocab_size);
      difference =
          Difference(RunRound(*expected, round, vocab_size), RunRound(*found, round, vocab_size));
      if (!difference.empty()) difference = fmt::format("round {}, {}", r, difference);
    }
    report.Expect(difference.empty(), fmt::format("rules, vocabulary {}", vocab_size),
                  difference.empty()
                      ? fmt::format("{} results, equal", kRounds * kRows * (kDecodeSteps + 1))
                      : difference);
  }
}

}  // namespace spry::testing
