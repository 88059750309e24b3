// Samples whose next token is known: log-probabilities as those of a token that was chosen, bit for
// bit, and nothing chosen.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/embed.h"
#include "ops/sampling.h"
#include "tests/device/cpu_targets.h"
#include "tests/device/op_harness.h"

namespace spry::testing {
namespace {

constexpr int kVocab = 1500;
constexpr int kTables = 12;  // rows of logits; token id t brings the t-th
constexpr int kMaxSamples = 64;

TestWeight LogitTable(bool with_nan) {
  Random random(17);
  std::vector<float> logits(kTables * kVocab);
  for (float& logit : logits) logit = std::round(random.Between(-60.0f, 60.0f)) / 8.0f;  // ties
  if (with_nan) logits[5 * kVocab + 77] = NAN;
  return FloatWeight("logits", Shape{kTables, kVocab}, std::move(logits));
}

class Judge {
 public:
  Judge(const Target& target, const TestWeight& table) {
    Tracer tracer("judge", {.activation = target.ActivationDType(DType::kF32)});
    SampleAndAdvance(tracer, GatherSamples(tracer, Embed(tracer, table.handle)));
    program_ = std::make_unique<Program>(*tracer.Finish(kVocab));
    executable_ = target.Compile(*program_, {.max_tokens = kMaxSamples,
                                             .max_rows = 4,
                                             .max_samples = kMaxSamples,
                                             .max_blocks_per_row = 4,
                                             .num_blocks = 16});
  }
  const StepResult& Run(const std::function<void(StepWriter&)>& fill) {
    return executable_->RunStep(fill);
  }

 private:
  std::unique_ptr<Program> program_;
  std::unique_ptr<TestExecutable> executable_;
};

bool Same(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.num_top == b.num_top && std::memcmp(&a, &b, offsetof(TokenLogprobs, top)) == 0 &&
         std::memcmp(a.top, b.top, a.num_top * sizeof(TokenLogprob)) == 0;
}

RowParams Asking(int num_prompt_logprobs) {
  RowParams params{.max_outputs = 9};
  params.num_prompt_logprobs = num_prompt_logprobs;
  return params;
}

// Ids of tables, which are token ids too.
const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};

TEST(JudgeTest, KnownTokensAgainstDouble) {
  const TestWeight table = LogitTable(/*with_nan=*/false);
  for (const auto& target : CpuTargets(/*threads=*/2)) {
    Judge judge(*target, table);
    const StepResult& result = judge.Run([&](StepWriter& step) {
      step.Join(0, Asking(4));
      step.Judge(0, kPrompt, 0, static_cast<int>(kPrompt.size()), /*next=*/1499);
    });
    EXPECT_EQ(result.rows[0].count, 0);
    EXPECT_EQ(result.rows[0].finish, FinishReason::kNone);
    for (size_t i = 0; i < kPrompt.size(); ++i) {
      const double* logits = table.values.data() + kPrompt[i] * kVocab;
      const int32_t next = i + 1 < kPrompt.size() ? kPrompt[i + 1] : 1499;
      double sum = 0.0;
      int rank = 1;
      for (int id = 0; id < kVocab; ++id) {
        sum += std::exp(logits[id]);
        rank += logits[id] > logits[next] || (logits[id] == logits[next] && id < next);
      }
      const TokenLogprobs& found = result.logprobs[i];
      EXPECT_EQ(found.chosen.token, TokenId(next)) << target->name();
      EXPECT_EQ(found.rank, rank);
      EXPECT_NEAR(found.chosen.logprob, logits[next] - std::log(sum), 2e-6);
      ASSERT_EQ(found.num_top, 4);
      for (int n = 1; n < 4; ++n) EXPECT_LE(found.top[n].logprob, found.top[n - 1].logprob);
    }
  }
}

// Whole or in chunks, beside rows that choose; the last position chooses as it would without.
TEST(JudgeTest, ChunksAndNeighboursChangeNothing) {
  const TestWeight table = LogitTable(/*with_nan=*/false);
  const int length = static_cast<int>(kPrompt.size());
  std::vector<TokenLogprobs> expected;  // of the reference, whole and alone
  TokenId chosen;
  for (const int threads : {1, 3}) {
    for (const auto& target : CpuTargets(threads)) {
      for (const int chunk : {length, 5, 1}) {
        for (const bool neighbours : {false, true}) {
          Judge judge(*target, table);
          std::vector<TokenLogprobs> found;
          RowResult last;
          for (int start = 0; start < length; start += chunk) {
            const int n = std::min(chunk, length - start);
            const int32_t next = start + n < length ? kPrompt[start + n] : -1;
            const StepResult& result = judge.Run([&](StepWriter& step) {
              if (neighbours) {
                RowParams draws{.temperature = 1.0f, .top_k = 30, .max_outputs = 100};
                draws.num_logprobs = 2;
                step.Join(2, draws);
                step.Prefill(2, {&kPrompt[1], 3}, 0, /*sample=*/true);
              }
              if (start == 0) step.Join(0, Asking(20));
              step.Judge(0, std::span(kPrompt).subspan(start, n), start, n, next);
            });
            const int first = neighbours ? 1 : 0;
            const int targets = n - (next < 0 ? 1 : 0);
            found.insert(found.end(), result.logprobs + first, result.logprobs + first + targets);
            last = result.rows[first];
          }
          if (expected.empty()) {
            expected = found;
            chosen = last.tokens[0];
          }
          ASSERT_EQ(found.size(), expected.size());
          for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_TRUE(Same(found[i], expected[i])) << target->name() << ", token " << i + 1;
          }
          EXPECT_EQ(last.count, 1);
          EXPECT_EQ(last.tokens[0], chosen);
        }
      }
    }
  }
}

// A token that greedy choice takes is reported as the same token when it is known.
TEST(JudgeTest, AsAChosenTokenIsReported) {
  const TestWeight table = LogitTable(/*with_nan=*/false);
  for (const auto& target : CpuTargets(/*threads=*/2)) {
    Judge judge(*target, table);
    for (int32_t id = 0; id < kTables; ++id) {
      RowParams params = Asking(7);
      params.num_logprobs = 7;
      const StepResult& decode = judge.Run([&](StepWriter& step) {
        step.Join(0, params);
        step.Prefill(0, {&id, 1}, 0, /*sample=*/true);
      });
      const TokenLogprobs chosen = decode.logprobs[0];
      EXPECT_EQ(chosen.rank, 1);
      const StepResult& judged = judge.Run([&](StepWriter& step) {
        step.Join(0, params);
        step.Judge(0, {&id, 1}, 0, 1, chosen.chosen.token.value());
      });
      EXPECT_TRUE(Same(judged.logprobs[0], chosen)) << target->name();
    }
  }
}

TEST(JudgeTest, ANanAmongJudgedTokensFailsItsRowAlone) {
  const TestWeight table = LogitTable(/*with_nan=*/true);
  for (const auto& target : CpuTargets(/*threads=*/2)) {
    Judge judge(*target, table);
    const std::vector<int32_t> good = {1, 2, 3}, bad = {1, 5, 3};
    const StepResult& result = judge.Run([&](StepWriter& step) {
      for (const int row : {0, 1}) {
        step.Join(row, Asking(0));
        step.Judge(row, row == 0 ? bad : good, 0, 3, -1);
      }
    });
    EXPECT_TRUE(result.rows[0].saw_nan);
    EXPECT_EQ(result.rows[0].finish, FinishReason::kError);
    EXPECT_EQ(result.rows[0].count, 0);
    EXPECT_EQ(result.rows[1].count, 1);
    EXPECT_EQ(result.logprobs[4].chosen.token, TokenId(3));
  }
}

// max_outputs 0: the row ends with its prompt and gives no token.
TEST(JudgeTest, AScoredPromptEndsWithoutAToken) {
  const TestWeight table = LogitTable(/*with_nan=*/false);
  for (const auto& target : CpuTargets(/*threads=*/2)) {
    Judge judge(*target, table);
    RowParams params = Asking(0);
    params.max_outputs = 0;
    const auto run = [&](int start, int n, int32_t next) {
      return judge
          .Run([&](StepWriter& step) {
            if (start == 0) step.Join(0, params);
            step.Judge(0, std::span(kPrompt).subspan(start, n), start, n, next);
          })
          .rows[0];
    };
    EXPECT_EQ(run(0, 5, kPrompt[5]).finish, FinishReason::kNone);
    const RowResult last = run(5, 7, -1);
    EXPECT_EQ(last.count, 0);
    EXPECT_EQ(last.finish, FinishReason::kLength);
  }
}

}  // namespace
}  // namespace spry::testing
