// The sample and advance ops. Logits are what the test says: token id t of the prompt brings row t
// of a table as its logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "ops/embed.h"
#include "ops/random.h"
#include "ops/sampling.h"
#include "tests/device/cpu_targets.h"
#include "tests/device/op_harness.h"

namespace spry::testing {
namespace {

constexpr int kMaxRows = 256;
constexpr float kInf = std::numeric_limits<float>::infinity();

class Sampler {
 public:
  // `tables` holds one row of logits per token id.
  Sampler(const Target& target, const std::vector<std::vector<float>>& tables)
      : vocab_size_(static_cast<int64_t>(tables.front().size())) {
    std::vector<float> values;
    for (const auto& row : tables) values.insert(values.end(), row.begin(), row.end());
    weight_ =
        FloatWeight("logits", Shape{static_cast<int64_t>(tables.size()), vocab_size_}, values);
    Tracer tracer("sampler", {.activation = target.ActivationDType(DType::kF32)});
    SampleAndAdvance(tracer, GatherSamples(tracer, Embed(tracer, weight_.handle)));
    program_ = std::make_unique<Program>(*tracer.Finish(vocab_size_));
    executable_ = target.Compile(*program_, {.max_tokens = kMaxRows,
                                             .max_rows = kMaxRows,
                                             .max_samples = kMaxRows,
                                             .max_blocks_per_row = 1,
                                             .num_blocks = 1});
  }

  struct Request {
    int32_t logits = 0;  // the table's row
    RowParams params;
    int num_outputs = 0;
  };
  std::vector<SampledResult> Sample(std::span<const Request> requests) {
    const StepResult& result = executable_->RunStep([&](StepWriter& step) {
      for (int row = 0; row < static_cast<int>(requests.size()); ++row) {
        step.Join(row, requests[row].params, requests[row].num_outputs);
        step.Prefill(row, {&requests[row].logits, 1}, 0, /*sample=*/true);
      }
    });
    return SampledResults(result, static_cast<int>(requests.size()));
  }
  SampledResult SampleOne(const Request& request) { return Sample({&request, 1}).front(); }

  // How often each token comes, over seeds 0 .. draws - 1.
  std::vector<int> Count(int32_t logits, RowParams params, int draws) {
    std::vector<int> counts(vocab_size_);
    for (int first = 0; first < draws; first += kMaxRows) {
      std::vector<Request> requests;
      for (int i = first; i < std::min(draws, first + kMaxRows); ++i) {
        params.seed = i;
        requests.push_back({.logits = logits, .params = params});
      }
      for (const SampledResult& result : Sample(requests)) ++counts[result.tokens[0].value()];
    }
    return counts;
  }

  Executable& executable() { return executable_->executable(); }

 private:
  int64_t vocab_size_;
  TestWeight weight_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<TestExecutable> executable_;
};

RowParams Greedy() { return {.max_outputs = 100}; }
RowParams Drawing(float temperature = 1.0f) {
  return {.temperature = temperature, .max_outputs = 100};
}

std::vector<float> LogOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3.0));
  return logits;
}

std::vector<float> RandomLogits(int count, float scale, uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = random.Between(-scale, scale);
  return logits;
}

double ChiSquare(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (probabilities[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
      continue;
    }
    const double expected = draws * probabilities[i];
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

class SamplingTest : public ::testing::Test {
 protected:
  std::vector<std::unique_ptr<Target>> targets_ = CpuTargets(/*threads=*/2);
};

TEST_F(SamplingTest, GreedyTakesTheLowestIdOfTheLargest) {
  for (const auto& target : targets_) {
    Sampler sampler(*target, {{1, 5, 5, 2}, {-3, -2, -9, -2}, {0.0f, -0.0f, -1, -1}});
    EXPECT_EQ(sampler.SampleOne({.logits = 0, .params = Greedy()}).tokens[0], TokenId(1));
    EXPECT_EQ(sampler.SampleOne({.logits = 1, .params = Greedy()}).tokens[0], TokenId(1));
    EXPECT_EQ(sampler.SampleOne({.logits = 2, .params = Greedy()}).tokens[0], TokenId(0));
  }
}

TEST_F(SamplingTest, DrawsFollowTheDistribution) {
  const std::vector<double> p = {0.3, 0.2, 0.15, 0.1, 0.1, 0.06, 0.05, 0.03, 0.007, 0.003};
  std::vector<double> sharper;  // at temperature 0.5 probabilities are squared
  for (const double value : p) sharper.push_back(value * value);
  const double norm = std::accumulate(sharper.begin(), sharper.end(), 0.0);
  for (double& value : sharper) value /= norm;
  // 9 degrees of freedom: above 33.7 once in 10,000. Seeds are fixed, so this is no gamble.
  for (const auto& target : targets_) {
    Sampler sampler(*target, {LogOf(p)});
    EXPECT_LT(ChiSquare(sampler.Count(0, Drawing(), 20000), p), 33.7);
    EXPECT_LT(ChiSquare(sampler.Count(0, Drawing(0.5f), 20000), sharper), 33.7);
  }
}

TEST_F(SamplingTest, TopKKeepsTiesWithTheKth) {
  const std::vector<double> p = {0.1, 0.4, 0.2, 0.2, 0.1};
  for (const auto& target : targets_) {
    Sampler sampler(*target, {LogOf(p)});
    RowParams params = Drawing();
    params.top_k = 2;
    EXPECT_LT(ChiSquare(sampler.Count(0, params, 4000), {0, 0.5, 0.25, 0.25, 0}), 18.4);
    params.top_k = 1;
    EXPECT_EQ(sampler.Count(0, params, 300), (std::vector<int>{0, 300, 0, 0, 0}));
    params.top_k = 50;  // more than there are
    EXPECT_LT(ChiSquare(sampler.Count(0, params, 4000), p), 23.5);
  }
}

TEST_F(SamplingTest, TopPKeepsTheFewestThatReachIt) {
  const std::vector<double> p = {0.05, 0.5, 0.15, 0.3};
  const std::vector<double> even = {0.25, 0.25, 0.25, 0.25};
  for (const auto& target : targets_) {
    Sampler sampler(*target, {LogOf(p), LogOf(even)});
    const auto count = [&](int logits, float top_p) {
      RowParams params = Drawing();
      params.top_p = top_p;
      return sampler.Count(logits, params, 4000);
    };
    EXPECT_EQ(count(0, 0.49f), (std::vector<int>{0, 4000, 0, 0}));
    EXPECT_EQ(count(0, 1e-6f), (std::vector<int>{0, 4000, 0, 0}));
    EXPECT_LT(ChiSquare(count(0, 0.7f), {0, 0.625, 0, 0.375}), 15.1);
    EXPECT_LT(ChiSquare(count(0, 0.9f), {0, 0.5 / 0.95, 0.15 / 0.95, 0.3 / 0.95}), 18.4);
    EXPECT_LT(ChiSquare(count(0, 1.0f), p), 21.1);
    // Of equals, the lowest ids.
    EXPECT_LT(ChiSquare(count(1, 0.45f), {0.5, 0.5, 0, 0}), 15.1);
    EXPECT_LT(ChiSquare(count(1, 0.74f), {1 / 3.0, 1 / 3.0, 1 / 3.0, 0}), 18.4);
  }
}

TEST_F(SamplingTest, MinPIsRelativeToTheLikeliest) {
  const std::vector<double> p = {0.02, 0.5, 0.18, 0.3};
  for (const auto& target : targets_) {
    Sampler sampler(*target, {LogOf(p)});
    RowParams params = Drawing();
    params.min_p = 0.5f;
    EXPECT_LT(ChiSquare(sampler.Count(0, params, 4000), {0, 0.625, 0, 0.375}), 15.1);
    params.min_p = 1.0f;
    EXPECT_EQ(sampler.Count(0, params, 300), (std::vector<int>{0, 300, 0, 0}));
  }
}

// What a plain reading of the contract picks, with a sort and in double.
int32_t PlainDraw(const std::vector<float>& logits, const RowParams& params) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const auto weight = [&](int32_t id) {
    return std::exp((double{logits[id]} - logits[order[0]]) / params.temperature);
  };
  std::vector<int32_t> kept;
  for (const int32_t id : order) {
    if (weight(id) < params.min_p) break;
    if (params.top_k > 0 && std::ssize(kept) >= params.top_k && logits[id] != logits[kept.back()]) {
      break;
    }
    kept.push_back(id);
  }
  double total = 0, sum = 0;
  for (const int32_t id : kept) total += weight(id);
  size_t count = 0;
  while (count < kept.size() && sum < params.top_p * total) sum += weight(kept[count++]);
  if (params.top_p < 1.0f) kept.resize(std::max<size_t>(count, 1));
  const DrawKey key = MakeDrawKey(params.seed, /*output_index=*/3);
  double best_score = -std::numeric_limits<double>::infinity();
  int32_t best = -1;
  for (const int32_t id : kept) {
    const double uniform = DrawUniform(key, id);
    const double score = double{logits[id]} / params.temperature - std::log(-std::log(uniform));
    if (score > best_score) best_score = score, best = id;
  }
  return best;
}

TEST_F(SamplingTest, RandomSettingsPickWhatAPlainSamplerPicks) {
  constexpr int kCases = 2000, kVocab = 1003;
  Random random(31);
  std::vector<std::vector<float>> tables;
  for (int i = 0; i < 8; ++i) tables.push_back(RandomLogits(kVocab, 1.0f + i, 40 + i));
  for (const auto& target : targets_) {
    Sampler sampler(*target, tables);
    int differing = 0;
    for (int first = 0; first < kCases; first += kMaxRows) {
      std::vector<Sampler::Request> requests;
      for (int i = first; i < std::min(kCases, first + kMaxRows); ++i) {
        RowParams params = Drawing(random.Between(0.3f, 2.0f));
        params.seed = random.Next();
        if (random.Below(2)) params.top_k = static_cast<int32_t>(1 + random.Below(200));
        if (random.Below(2)) params.top_p = random.Between(0.05f, 1.0f);
        if (random.Below(2)) params.min_p = random.Between(0.0f, 0.3f);
        requests.push_back(
            {.logits = static_cast<int32_t>(random.Below(8)), .params = params, .num_outputs = 3});
      }
      const std::vector<SampledResult> results = sampler.Sample(requests);
      for (size_t i = 0; i < requests.size(); ++i) {
        const int32_t plain = PlainDraw(tables[requests[i].logits], requests[i].params);
        differing += results[i].tokens[0] != TokenId(plain);
      }
    }
    // f32 and double may disagree where two scores or a bound nearly meet; that is rare.
    EXPECT_LE(differing, 2);
  }
}

// A draw is a function of seed, output index and logits: not of the row, the batch or the step.
TEST_F(SamplingTest, SeedsDecideAlone) {
  const std::vector<float> logits = RandomLogits(500, 1.0f, 50);
  for (const auto& target : targets_) {
    Sampler sampler(*target, {logits, RandomLogits(500, 1.0f, 51)});
    RowParams params = Drawing(1.5f);
    params.seed = 12345;
    const Sampler::Request request{.params = params, .num_outputs = 7};
    const TokenId alone = sampler.SampleOne(request).tokens[0];
    std::vector<Sampler::Request> batch(40, {.logits = 1, .params = Drawing()});
    batch[33] = request;
    EXPECT_EQ(sampler.Sample(batch)[33].tokens[0], alone);
    std::set<int32_t> by_seed, by_index;
    for (int i = 0; i < 5; ++i) {
      params.seed = 100 + i;
      by_seed.insert(sampler.SampleOne({.params = params}).tokens[0].value());
      params.seed = 100;
      by_index.insert(sampler.SampleOne({.params = params, .num_outputs = i}).tokens[0].value());
    }
    EXPECT_GE(by_seed.size(), 3u);
    EXPECT_GE(by_index.size(), 3u);
  }
}

TEST_F(SamplingTest, TinyTemperaturesAreGreedyAndFinite) {
  const std::vector<float> logits = RandomLogits(300, 20.0f, 60);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  for (const auto& target : targets_) {
    Sampler sampler(*target, {logits});
    for (const float temperature : {1e-4f, static_cast<float>(kGreedyTemperature)}) {
      RowParams params = Drawing(temperature);
      for (const float top_p : {1.0f, 0.9f, 1e-4f}) {
        params.top_p = top_p;
        const SampledResult result = sampler.SampleOne({.params = params});
        EXPECT_EQ(result.tokens[0].value(), best) << temperature << ", top_p " << top_p;
        EXPECT_FALSE(result.saw_nan);
      }
    }
  }
}

TEST_F(SamplingTest, StopIdsAreMaskedBeforeMinOutputs) {
  for (const auto& target : targets_) {
    Sampler sampler(*target, {{0, 9, 8, 7}});
    for (const float temperature : {0.0f, 0.01f}) {
      RowParams params = Drawing(temperature);
      params.min_outputs = 2;
      params.num_stop_ids = 3;
      params.stop_ids[0] = TokenId(1);
      params.stop_ids[1] = TokenId(2);
      params.stop_ids[2] = TokenId(1);  // twice
      params.num_logprobs = 2;
      for (const int outputs : {0, 1}) {
        const SampledResult early = sampler.SampleOne({.params = params, .num_outputs = outputs});
        EXPECT_EQ(early.tokens[0], TokenId(3));
        EXPECT_EQ(early.finish, FinishReason::kNone);
        // Log-probabilities are of what the model said, masked ids included.
        EXPECT_EQ(early.logprobs.rank, 3);
        EXPECT_EQ(early.logprobs.top[0].token, TokenId(1));
      }
      const SampledResult late = sampler.SampleOne({.params = params, .num_outputs = 2});
      EXPECT_EQ(late.tokens[0], TokenId(1));
      EXPECT_EQ(late.finish, FinishReason::kStop);
      // The logits themselves stay as they were.
      std::vector<float> logits(4);
      ASSERT_TRUE(sampler.executable().CopyLogits(logits).ok());
      EXPECT_EQ(logits, (std::vector<float>{0, 9, 8, 7}));
    }
  }
}

TEST_F(SamplingTest, AVocabularyOfStopIdsStillGivesAToken) {
  for (const auto& target : targets_) {
    Sampler sampler(*target, {{1, 2}});
    RowParams params = Drawing();
    params.top_p = 0.5f;
    params.min_outputs = 2;
    params.num_stop_ids = 2;
    params.stop_ids[1] = TokenId(1);
    EXPECT_EQ(sampler.SampleOne({.params = params}).count, 1);
  }
}

TEST_F(SamplingTest, LimitsAndStopsFinish) {
  for (const auto& target : targets_) {
    Sampler sampler(*target, {{0, 1, 5, 1}});
    RowParams params = Greedy();
    params.max_outputs = 4;
    const auto finish = [&](int outputs) {
      return sampler.SampleOne({.params = params, .num_outputs = outputs}).finish;
    };
    EXPECT_EQ(finish(0), FinishReason::kNone);
    EXPECT_EQ(finish(2), FinishReason::kNone);
    EXPECT_EQ(finish(3), FinishReason::kLength);
    params.num_stop_ids = 1;
    params.stop_ids[0] = TokenId(2);
    EXPECT_EQ(finish(0), FinishReason::kStop);
    EXPECT_EQ(finish(3), FinishReason::kStop);  // both: the stop says more
  }
}

TEST_F(SamplingTest, BadLogitsFailTheirRowAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& target : targets_) {
    Sampler sampler(*target, {{0, 1, 2},
                              {0, nan, 2},
                              {nan, nan, nan},
                              {0, kInf, 0},
                              {-kInf, -kInf, -kInf},
                              {-kInf, 1, -kInf}});
    for (const float temperature : {0.0f, 1.0f}) {
      std::vector<Sampler::Request> requests;
      for (int i = 0; i < 6; ++i) requests.push_back({.logits = i, .params = Drawing(temperature)});
      const std::vector<SampledResult> results = sampler.Sample(requests);
      for (const int bad : {1, 2, 3, 4}) {
        EXPECT_TRUE(results[bad].saw_nan) << bad;
        EXPECT_EQ(results[bad].finish, FinishReason::kError) << bad;
        EXPECT_EQ(results[bad].count, 0) << bad;
      }
      EXPECT_FALSE(results[0].saw_nan);
      EXPECT_EQ(results[0].count, 1);
      EXPECT_EQ(results[5].tokens[0], TokenId(1));
    }
  }
}

TEST_F(SamplingTest, LogprobsRankAndTop) {
  std::vector<float> logits = RandomLogits(2500, 4.0f, 70);
  logits[100] = logits[50] = logits[2000] = 3.5f;  // ties
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit});
  const auto logprob = [&](int32_t id) { return logits[id] - std::log(sum); };
  for (const auto& target : targets_) {
    Sampler sampler(*target, {logits});
    for (int seed = 0; seed < 30; ++seed) {
      RowParams params = Drawing(2.0f);
      params.seed = seed;
      params.num_logprobs = seed % (kMaxLogprobs + 1);
      const SampledResult result = sampler.SampleOne({.params = params});
      const int32_t chosen = result.tokens[0].value();
      EXPECT_EQ(result.logprobs.chosen.token.value(), chosen);
      EXPECT_NEAR(result.logprobs.chosen.logprob, logprob(chosen), 2e-6);
      EXPECT_EQ(order[result.logprobs.rank - 1], chosen);
      ASSERT_EQ(result.logprobs.num_top, params.num_logprobs);
      for (int i = 0; i < result.logprobs.num_top; ++i) {
        EXPECT_EQ(result.logprobs.top[i].token.value(), order[i]);
        EXPECT_NEAR(result.logprobs.top[i].logprob, logprob(order[i]), 2e-6);
      }
    }
  }
}

TEST_F(SamplingTest, MoreLogprobsThanTokens) {
  for (const auto& target : targets_) {
    Sampler sampler(*target, {{1, 3, 2}});
    RowParams params = Greedy();
    params.num_logprobs = 5;
    const SampledResult result = sampler.SampleOne({.params = params});
    ASSERT_EQ(result.logprobs.num_top, 3);
    EXPECT_EQ(result.logprobs.top[2].token, TokenId(0));
    params.num_logprobs = -1;
    EXPECT_EQ(sampler.SampleOne({.params = params}).count, 1);
  }
}

TEST(DrawUniform, IsNeverZeroOrOne) {
  // Some id gives each 23-bit pattern or nearly; the ends must stay inside.
  float lowest = 1.0f, highest = 0.0f;
  double sum = 0.0;
  constexpr int kDraws = 1 << 24;
  for (int32_t i = 0; i < kDraws; ++i) {
    const float u = DrawUniform({.first = 1, .second = 2}, i);
    lowest = std::min(lowest, u);
    highest = std::max(highest, u);
    sum += u;
  }
  EXPECT_GT(lowest, 0.0f);
  EXPECT_LT(lowest, 1e-6f);
  EXPECT_LT(highest, 1.0f);
  EXPECT_GT(highest, 1.0f - 1e-6f);
  EXPECT_NEAR(sum / kDraws, 0.5, 1e-3);
}

}  // namespace
}  // namespace spry::testing
