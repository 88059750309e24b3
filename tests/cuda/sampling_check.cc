#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>

#include "ops/embed.h"
#include "ops/sampling.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"
#include "tests/device/cpu_targets.h"

namespace spry::testing {
namespace {

constexpr int kRows = 64;

// Rows of logits with everything that makes samplers differ: ties, infinities, one NaN.
TestWeight LogitRows(int vocab_size) {
  Random random(/*seed=*/91);
  std::vector<float> logits;
  for (int r = 0; r < kRows; ++r) {
    const float spread = r % 3 == 0 ? 0.5f : 6.0f;
    for (int i = 0; i < vocab_size; ++i) {
      float logit = random.Between(-spread, spread);
      if (r % 4 == 1) logit = std::round(logit * 2.0f) * 0.5f;  // many ties, both zeros
      if (r % 8 == 2 && i % 3 == 0) logit = -INFINITY;
      logits.push_back(logit);
    }
    if (r == 13) logits[r * vocab_size + vocab_size / 2] = NAN;
    if (r == 14) logits[r * vocab_size + 5] = INFINITY;
  }
  return FloatWeight("logits", Shape{kRows, vocab_size}, std::move(logits));
}

RowParams DrawParams(int round, int row, int vocab_size) {
  Random random(static_cast<uint64_t>(round) * kRows + row);
  const auto chance = [&random](double p) { return random.Uniform() < p; };
  RowParams params;
  params.temperature = chance(0.2) ? 0.0f : random.Between(0.1f, 2.0f);
  params.top_p = chance(0.5) ? 1.0f : random.Between(0.01f, 1.0f);
  params.min_p = chance(0.7) ? 0.0f : random.Between(0.0f, 0.5f);
  params.top_k = chance(0.5) ? 0 : 1 + static_cast<int32_t>(random.Below(200));
  params.seed = random.Next();
  params.min_outputs = chance(0.3) ? 3 : 0;
  params.max_outputs = 1 + static_cast<int32_t>(random.Below(3));
  params.num_logprobs = chance(0.4) ? -1 : static_cast<int32_t>(random.Below(kMaxLogprobs + 1));
  params.num_stop_ids = static_cast<int32_t>(random.Below(kMaxStopTokenIds + 1));
  for (int i = 0; i < params.num_stop_ids; ++i) {
    params.stop_ids[i] = TokenId(static_cast<int32_t>(random.Below(vocab_size)));
  }
  return params;
}

bool Same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.token == b.token &&
         std::bit_cast<uint32_t>(a.logprob) == std::bit_cast<uint32_t>(b.logprob);
}

std::string Difference(const TokenLogprobs& a, const TokenLogprobs& b) {
  if (a.rank != b.rank) return fmt::format("rank {} but {}", b.rank, a.rank);
  if (!Same(a.chosen, b.chosen)) {
    return fmt::format("logprob {} but {}", b.chosen.logprob, a.chosen.logprob);
  }
  if (a.num_top != b.num_top) return fmt::format("{} but {} on top", b.num_top, a.num_top);
  for (int i = 0; i < a.num_top; ++i) {
    if (!Same(a.top[i], b.top[i])) return fmt::format("top {}", i);
  }
  return "";
}

std::string Difference(const SampledResult& a, const SampledResult& b, bool logprobs) {
  if (a.count != b.count) return fmt::format("count {} but {}", b.count, a.count);
  if (a.finish != b.finish) return "finish reason";
  if (a.saw_nan != b.saw_nan) return "saw_nan";
  if (a.count > 0 && a.tokens[0] != b.tokens[0]) {
    return fmt::format("token {} but {}", b.tokens[0].value(), a.tokens[0].value());
  }
  return logprobs && a.count > 0 ? Difference(a.logprobs, b.logprobs) : "";
}

Program TraceSampler(const TestWeight& logits, int vocab_size) {
  Tracer tracer("sampler", {.max_length = 16});
  SampleAndAdvance(tracer, GatherSamples(tracer, Embed(tracer, logits.handle)));
  return *tracer.Finish(vocab_size);
}

std::vector<SampledResult> RunRound(TestExecutable& executable, int round, int vocab_size) {
  const StepResult& result = executable.RunStep([&](StepWriter& step) {
    for (int row = 0; row < kRows; ++row) {
      step.Join(row, DrawParams(round, row, vocab_size), /*num_outputs=*/round % 4);
      const int32_t id = (row + round) % kRows;
      step.Prefill(row, {&id, 1}, /*start=*/0, /*sample=*/true);
    }
  });
  return SampledResults(result, kRows);
}

constexpr int kPrompt = 30;

// Row 0 meets no faulty logits, row 1 a NaN.
std::array<int32_t, kPrompt> JudgedPrompt(int row, int vocab_size) {
  std::array<int32_t, kPrompt> ids;
  for (int i = 0; i < kPrompt; ++i) ids[i] = std::min(i + (row == 0 ? 16 : 0), vocab_size - 1);
  return ids;
}

// Tokens [start, end) of both prompts are judged, beside a row that draws.
const StepResult& JudgeChunk(TestExecutable& executable, int start, int end, int vocab_size) {
  return executable.RunStep([&](StepWriter& step) {
    const int32_t drawn = 3;
    step.Join(2, DrawParams(/*round=*/start, /*row=*/2, vocab_size));
    step.Prefill(2, {&drawn, 1}, /*start=*/0, /*sample=*/true);
    for (const int row : {0, 1}) {
      const auto ids = JudgedPrompt(row, vocab_size);
      RowParams params{.max_outputs = 5};
      params.num_prompt_logprobs = row == 0 ? kMaxLogprobs : 0;
      if (start == 0) step.Join(row, params);
      const int32_t next = end < kPrompt ? ids[end] : -1;
      step.Judge(row, std::span(ids).subspan(start, end - start), start, end - start, next);
    }
  });
}

std::string JudgeDifference(TestExecutable& expected, TestExecutable& found, int vocab_size) {
  for (const int chunk : {kPrompt, 17, 1}) {
    bool failed[3] = {};  // rows of the step, from then on
    for (int start = 0; start < kPrompt; start += chunk) {
      const int end = std::min(start + chunk, kPrompt), n = end - start;
      const StepResult& a = JudgeChunk(expected, start, end, vocab_size);
      const StepResult& b = JudgeChunk(found, start, end, vocab_size);
      for (int r = 0; r < 3; ++r) {
        failed[r] |= a.rows[r].saw_nan;
        const std::string difference = Difference({a.rows[r], {}}, {b.rows[r], {}}, false);
        if (!difference.empty())
          return fmt::format("chunks of {}, row {}: {}", chunk, r, difference);
      }
      for (int l = 1; l <= 2 * n; ++l) {
        const bool chooses = end == kPrompt && l % n == 0;
        if (chooses || failed[l <= n ? 1 : 2]) continue;
        const std::string difference = Difference(a.logprobs[l], b.logprobs[l]);
        if (!difference.empty()) {
          return fmt::format("chunks of {}, sample {}: {}", chunk, start + l, difference);
        }
      }
    }
  }
  return "";
}

}  // namespace

void CheckSampling(Report& report, const CheckOptions& options) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget cuda(*std::move(device));
  const CpuTarget reference = ReferenceTarget(options.threads);
  for (const int vocab_size : {37, 5000, 50272}) {
    const TestWeight logits = LogitRows(vocab_size);
    const Program program = TraceSampler(logits, vocab_size);
    const StepLimits limits{.max_tokens = kRows,
                            .max_rows = kRows,
                            .max_samples = kRows,
                            .max_blocks_per_row = 1,
                            .num_blocks = 1};
    const auto expected = reference.Compile(program, limits);
    const auto found = cuda.Compile(program, limits);
    int differences = 0;
    std::string first;
    constexpr int kRounds = 12;
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<SampledResult> a = RunRound(*expected, round, vocab_size);
      const std::vector<SampledResult> b = RunRound(*found, round, vocab_size);
      for (int row = 0; row < kRows; ++row) {
        const RowParams params = DrawParams(round, row, vocab_size);
        const std::string difference = Difference(a[row], b[row], params.num_logprobs >= 0);
        if (difference.empty()) continue;
        if (differences++ == 0) first = fmt::format("round {}, row {}: {}", round, row, difference);
      }
    }
    report.Expect(differences == 0, fmt::format("sample, vocabulary {}", vocab_size),
                  differences == 0
                      ? fmt::format("{} results, equal in every field", kRounds * kRows)
                      : fmt::format("{} results differ; {}", differences, first));
    const std::string judged = JudgeDifference(*expected, *found, vocab_size);
    report.Expect(judged.empty(), fmt::format("judged prompts, vocabulary {}", vocab_size),
                  judged.empty() ? "equal in every field" : judged);
  }
}

}  // namespace spry::testing
