// Rules on logits, on every CPU target. Token id t of a prompt brings row t of a table as its
// logits.
#include "ops/logit_rules.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "ops/embed.h"
#include "ops/sampling.h"
#include "tests/device/cpu_targets.h"
#include "tests/device/random_rules.h"

namespace spry::testing {
namespace {

constexpr int kRows = 32;
constexpr int kSlots = 20;

StepLimits LimitsFor(int vocab_size) {
  return {.max_tokens = kRows,
          .max_rows = kRows,
          .max_samples = kRows,
          .max_blocks_per_row = 1,
          .num_blocks = 1,
          .max_rule_slots = kSlots,
          .vocab_size = vocab_size};
}

class RuledSampler {
 public:
  RuledSampler(const Target& target, const std::vector<std::vector<float>>& tables)
      : vocab_size_(static_cast<int>(tables.front().size())),
        layout_(MakeRuleSlotLayout(vocab_size_)) {
    std::vector<float> values;
    for (const auto& row : tables) values.insert(values.end(), row.begin(), row.end());
    weight_ =
        FloatWeight("logits", Shape{static_cast<int64_t>(tables.size()), vocab_size_}, values);
    Tracer tracer("sampler", {.activation = target.ActivationDType(DType::kF32)});
    SampleAndAdvance(tracer, GatherSamples(tracer, Embed(tracer, weight_.handle)));
    program_ = std::make_unique<Program>(*tracer.Finish(vocab_size_));
    executable_ = target.Compile(*program_, LimitsFor(vocab_size_));
  }

  RuleSlot slot(int i) { return executable_->executable().RuleImage(i); }

  // The request joins `row` with a slot and is sampled from row `logits` of the table.
  void Join(StepWriter& step, int row, int rule_slot, const RuledRequest& request, int32_t logits) {
    WriteRuleImage(layout_, request.rules, request.prompt, request.outputs, slot(rule_slot));
    step.Join(row, request.params, static_cast<int>(request.outputs.size()), rule_slot);
    step.Prefill(row, {&logits, 1}, 0, /*sample=*/true);
  }
  SampledResult SampleOne(const RuledRequest& request, int32_t logits, int rule_slot = 0) {
    return OneResult([&](StepWriter& step) { Join(step, 0, rule_slot, request, logits); });
  }
  // The same without rules.
  void JoinPlain(StepWriter& step, int row, const RuledRequest& request, int32_t logits) {
    step.Join(row, request.params, static_cast<int>(request.outputs.size()));
    step.Prefill(row, {&logits, 1}, 0, /*sample=*/true);
  }
  SampledResult SamplePlain(const RuledRequest& request, int32_t logits) {
    return OneResult([&](StepWriter& step) { JoinPlain(step, 0, request, logits); });
  }
  const RowResult* Run(const std::function<void(StepWriter&)>& fill) {
    return executable_->RunStep(fill).rows;
  }

 private:
  SampledResult OneResult(const std::function<void(StepWriter&)>& fill) {
    return SampledResults(executable_->RunStep(fill), /*rows=*/1)[0];
  }

  int vocab_size_;
  RuleSlotLayout layout_;
  TestWeight weight_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<TestExecutable> executable_;
};

std::vector<float> RandomLogits(int count, float scale, uint64_t seed) {
  Random random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = random.Between(-scale, scale);
  return logits;
}

RuledRequest Greedy() {
  RuledRequest request;
  request.params.max_outputs = 1000;
  return request;
}

class LogitRulesTest : public ::testing::Test {
 protected:
  std::vector<std::unique_ptr<Target>> targets_ = CpuTargets(/*threads=*/2);
};

// 600 random requests: what the rules make of the logits is a plain reading's, bit for bit, and the
// choice is that of a row without rules whose logits are these.
TEST_F(LogitRulesTest, LogitsAndChoicesAreThoseOfAPlainReading) {
  constexpr int kVocab = 203, kCases = 600;
  Random random(17);
  std::vector<RuledRequest> requests;
  std::vector<std::vector<float>> tables;
  for (int i = 0; i < kCases; ++i) {
    RuledRequest request = RandomRuled(random, kVocab);
    RowParams& params = request.params;
    params.max_outputs = 100;
    params.seed = random.Next();
    params.temperature = random.Below(3) == 0 ? 0.0f : random.Between(0.3f, 2.0f);
    if (random.Below(3) == 0) params.top_k = static_cast<int32_t>(1 + random.Below(40));
    if (random.Below(3) == 0) params.top_p = random.Between(0.05f, 1.0f);
    if (random.Below(3) == 0) params.min_p = random.Between(0.0f, 0.3f);
    tables.push_back(RandomLogits(kVocab, 6.0f, 1000 + i));
    requests.push_back(std::move(request));
  }
  for (int i = 0; i < kCases; ++i) tables.push_back(PlainAdjust(tables[i], requests[i]));
  for (const auto& target : targets_) {
    RuledSampler sampler(*target, tables);
    int nothing_allowed = 0;
    for (int first = 0; first < kCases; first += kSlots) {
      const RowResult* rows = sampler.Run([&](StepWriter& step) {
        for (int i = 0; i < kSlots; ++i) sampler.Join(step, i, i, requests[first + i], first + i);
      });
      const std::vector<RowResult> found(rows, rows + kSlots);
      for (int i = 0; i < kSlots; ++i) {
        ASSERT_EQ(std::memcmp(sampler.slot(i).logits, tables[kCases + first + i].data(),
                              kVocab * sizeof(float)),
                  0)
            << target->name() << ", case " << first + i;
      }
      const RowResult* plain = sampler.Run([&](StepWriter& step) {
        for (int i = 0; i < kSlots; ++i) {
          const int32_t logits = kCases + first + i;
          sampler.JoinPlain(step, i, requests[first + i], logits);
        }
      });
      for (int i = 0; i < kSlots; ++i) {
        const bool nothing = *std::ranges::max_element(tables[kCases + first + i]) == -INFINITY;
        nothing_allowed += nothing;
        ASSERT_EQ(found[i].fault, nothing ? RowFault::kNothingAllowed : RowFault::kNone);
        EXPECT_EQ(found[i].count, plain[i].count);
        EXPECT_EQ(found[i].tokens[0], plain[i].tokens[0]) << target->name() << first + i;
        EXPECT_EQ(found[i].finish, plain[i].finish);
      }
    }
    EXPECT_LT(nothing_allowed, kCases / 10);
  }
}

// The device notes its own tokens: 200 greedy tokens, each from the row of the token before, are
// those of a loop that knows them all. Twelve requests run together.
TEST_F(LogitRulesTest, CountsFollowTheTokensThatTheDeviceFeedsItself) {
  constexpr int kVocab = 61, kOutputs = 200, kRequests = 12, kFirst = 7;
  std::vector<std::vector<float>> tables;
  for (int t = 0; t < kVocab; ++t) tables.push_back(RandomLogits(kVocab, 3.0f, t));
  Random random(23);
  std::vector<RuledRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    requests.push_back(RandomRuled(random, kVocab));
    requests[i].rules.mask = nullptr;  // needs the host
    requests[i].rules.allowed.clear();
    requests[i].params.max_outputs = 1000;
    requests[i].params.num_stop_ids = 0;
  }
  for (const auto& target : targets_) {
    RuledSampler sampler(*target, tables);
    std::vector<RuledRequest> loops = requests;
    std::vector<int> last(kRequests, kFirst);
    for (int n = 0; n < kOutputs; ++n) {
      const RowResult* rows = sampler.Run([&](StepWriter& step) {
        for (int i = 0; i < kRequests; ++i) {
          n == 0 ? sampler.Join(step, i, i, requests[i], kFirst) : step.Decode(i);
        }
      });
      for (int i = 0; i < kRequests; ++i) {
        const std::vector<float> logits = PlainAdjust(tables[last[i]], loops[i]);
        last[i] = static_cast<int>(std::ranges::max_element(logits) - logits.begin());
        ASSERT_EQ(rows[i].tokens[0].value(), last[i]) << "request " << i << ", output " << n;
        loops[i].outputs.push_back(TokenId(last[i]));
      }
    }
  }
}

TEST_F(LogitRulesTest, LogprobsAreOfTheRawLogits) {
  for (const auto& target : targets_) {
    RuledSampler sampler(*target, {RandomLogits(100, 3.0f, 5)});
    RuledRequest request = Greedy();
    request.params.num_logprobs = 3;
    const SampledResult plain = sampler.SamplePlain(request, 0);
    request.rules.biases = {{plain.tokens[0], -100.0f}};
    const SampledResult ruled = sampler.SampleOne(request, 0);
    EXPECT_EQ(ruled.tokens[0], plain.logprobs.top[1].token);
    EXPECT_EQ(ruled.logprobs.rank, 2);
    EXPECT_EQ(ruled.logprobs.chosen.logprob, plain.logprobs.top[1].logprob);
    EXPECT_EQ(ruled.logprobs.top[0].logprob, plain.logprobs.top[0].logprob);
  }
}

TEST_F(LogitRulesTest, RulesThatLeaveNothingEndTheirRequestAlone) {
  for (const auto& target : targets_) {
    RuledSampler sampler(*target, {{1, 2, 3, 4}, {1, -INFINITY, 3, 4}, {1, NAN, 3, 4}});
    RuledRequest only_one = Greedy();
    only_one.rules.allowed = {TokenId(1)};
    RuledRequest forbidden = only_one;
    forbidden.rules.bad_words = {{TokenId(1)}};
    RuledRequest too_early = only_one;
    too_early.params.min_outputs = 1;
    too_early.params.num_stop_ids = 1;
    too_early.params.stop_ids[0] = TokenId(1);
    for (const float temperature : {0.0f, 1.0f}) {
      for (RuledRequest* request : {&only_one, &forbidden, &too_early}) {
        request->params.temperature = temperature;
      }
      const RowResult* rows = sampler.Run([&](StepWriter& step) {
        sampler.Join(step, 0, 0, only_one, 0);
        sampler.Join(step, 1, 1, forbidden, 0);
        sampler.Join(step, 2, 2, too_early, 0);
        sampler.Join(step, 3, 3, only_one, 1);  // the model itself rules it out
        sampler.Join(step, 4, 4, only_one, 2);
        sampler.Join(step, 5, 5, only_one, 0);
      });
      for (const int fine : {0, 5}) {
        EXPECT_EQ(rows[fine].fault, RowFault::kNone);
        EXPECT_EQ(rows[fine].tokens[0], TokenId(1));
      }
      for (const int bad : {1, 2, 3}) {
        EXPECT_EQ(rows[bad].fault, RowFault::kNothingAllowed) << bad;
        EXPECT_EQ(rows[bad].finish, FinishReason::kError);
        EXPECT_EQ(rows[bad].count, 0);
      }
      EXPECT_EQ(rows[4].fault, RowFault::kNan);
    }
  }
}

// Rows beside each other, with rules and without: each as if alone.
TEST_F(LogitRulesTest, NeighboursDoNotMatter) {
  constexpr int kVocab = 131;
  Random random(29);
  std::vector<std::vector<float>> tables;
  for (int i = 0; i < kRows; ++i) tables.push_back(RandomLogits(kVocab, 4.0f, 70 + i));
  for (const auto& target : targets_) {
    RuledSampler sampler(*target, tables);
    std::vector<RuledRequest> requests;
    for (int row = 0; row < kRows; ++row) {
      requests.push_back(RandomRuled(random, kVocab));
      requests.back().params.temperature = row % 2 == 0 ? 0.0f : 0.9f;
      requests.back().params.max_outputs = 100;
    }
    const auto ruled = [](int row) { return row % 3 != 0 && row / 3 * 2 + row % 3 <= kSlots; };
    std::vector<RowResult> alone;
    for (int row = 0; row < kRows; ++row) {
      alone.push_back(ruled(row) ? sampler.SampleOne(requests[row], row)
                                 : sampler.SamplePlain(requests[row], row));
    }
    const RowResult* together = sampler.Run([&](StepWriter& step) {
      int slot = 0;
      for (int row = 0; row < kRows; ++row) {
        if (ruled(row)) {
          sampler.Join(step, row, slot++, requests[row], row);
        } else {
          sampler.JoinPlain(step, row, requests[row], row);
        }
      }
    });
    for (int row = 0; row < kRows; ++row) {
      EXPECT_EQ(together[row].count, alone[row].count) << row;
      EXPECT_EQ(together[row].tokens[0], alone[row].tokens[0]) << row;
      EXPECT_EQ(together[row].fault, alone[row].fault) << row;
    }
  }
}

TEST_F(LogitRulesTest, DrawsFollowTheAdjustedDistribution) {
  const std::vector<double> p = {0.3, 0.2, 0.15, 0.1, 0.1, 0.06, 0.05, 0.04};
  std::vector<float> logits;
  for (const double value : p) logits.push_back(static_cast<float>(std::log(value)));
  RuledRequest request = Greedy();
  request.params.temperature = 1.0f;
  request.outputs = {TokenId(1), TokenId(1), TokenId(4)};
  request.rules = {.presence_penalty = 0.5f,
                   .frequency_penalty = 0.25f,
                   .biases = {{TokenId(7), 1.5f}},
                   .allowed = {TokenId(0), TokenId(1), TokenId(4), TokenId(7)}};
  std::vector<double> expected = {0.3, 0.2 * std::exp(-1.0), 0, 0, 0.1 * std::exp(-0.75), 0,
                                  0,   0.04 * std::exp(1.5)};
  const double norm = std::accumulate(expected.begin(), expected.end(), 0.0);
  for (const auto& target : targets_) {
    RuledSampler sampler(*target, {logits});
    constexpr int kDraws = 5000;
    std::vector<int> counts(p.size());
    for (int first = 0; first < kDraws; first += kSlots) {
      const RowResult* rows = sampler.Run([&](StepWriter& step) {
        for (int i = 0; i < kSlots; ++i) {
          request.params.seed = first + i;
          sampler.Join(step, i, i, request, 0);
        }
      });
      for (int i = 0; i < kSlots; ++i) ++counts[rows[i].tokens[0].value()];
    }
    double chi_square = 0;
    for (size_t id = 0; id < p.size(); ++id) {
      const double mean = kDraws * expected[id] / norm;
      if (mean == 0) {
        EXPECT_EQ(counts[id], 0) << id;
      } else {
        chi_square += (counts[id] - mean) * (counts[id] - mean) / mean;
      }
    }
    EXPECT_LT(chi_square, 21.1);  // 3 degrees of freedom: above once in 10,000
  }
}

// Penalties that f32 can hardly hold leave logits that can be chosen from.
TEST_F(LogitRulesTest, ExtremePenaltiesStayFinite) {
  for (const auto& target : targets_) {
    RuledSampler sampler(*target, {{8, -6, 5, -7}});
    for (const float penalty : {1.2e-38f, 3.4e38f}) {
      for (const float temperature : {0.0f, static_cast<float>(kGreedyTemperature), 1.0f}) {
        RuledRequest request = Greedy();
        request.prompt = {TokenId(0), TokenId(1)};
        request.outputs = {TokenId(1), TokenId(3)};
        request.rules.repetition_penalty = penalty;
        request.params.temperature = temperature;
        request.params.top_p = 0.99f;
        const RowResult result = sampler.SampleOne(request, 0);
        EXPECT_EQ(result.fault, RowFault::kNone);
        EXPECT_EQ(result.tokens[0], TokenId(penalty < 1 ? 0 : 2));
      }
    }
  }
}

// A slot takes three words and a bit's words a token, and what lists need; a row without rules
// nothing, a device without slots neither.
TEST(RuleSlotMemory, IsWhatTheFormulaSays) {
  constexpr int64_t kLists =
      64 + 8 * kMaxLogitBiases + 4 * kMaxBadWords + 4 * kMaxBadWordTokens + 4 * kMaxBadWordLength;
  for (const int64_t vocab_size : {320, 49152, 151936}) {
    const RuleSlotLayout layout = MakeRuleSlotLayout(vocab_size);
    const int64_t masks = 2 * ((vocab_size + 31) / 32 * 4);
    EXPECT_GE(layout.image_bytes, kLists + masks + 4 * vocab_size);
    EXPECT_LE(layout.image_bytes, kLists + masks + 4 * vocab_size + 3 * kRuleAlignBytes);
    EXPECT_EQ(layout.slot_bytes, layout.image_bytes + 4 * vocab_size);
    StepLimits limits = LimitsFor(static_cast<int>(vocab_size));
    EXPECT_EQ(RuleSlotBytes(limits), kSlots * layout.slot_bytes);
    const int64_t with_slots = StepStateBytes(limits);
    limits.max_rule_slots = 0;
    EXPECT_EQ(with_slots - StepStateBytes(limits), kSlots * layout.slot_bytes);
    EXPECT_EQ(RuleSlotBytes(limits), 0);
  }
}

// On the CPU a slot takes memory once somebody with rules has it.
TEST(RuleSlotMemory, RowsWithoutRulesTouchNoSlot) {
  constexpr int kVocab = 50000;
  const CpuTarget target = ReferenceTarget(/*threads=*/1);
  RuledSampler sampler(target, {RandomLogits(kVocab, 1.0f, 3)});
  // Pages of the last slot but one, away from everything else by more than a huge page.
  const int64_t page = sysconf(_SC_PAGESIZE);
  const auto resident = [&] {
    const RuleSlot slot = sampler.slot(kSlots - 2);
    const auto begin = (reinterpret_cast<uintptr_t>(slot.header) + page - 1) / page * page;
    const auto end = reinterpret_cast<uintptr_t>(slot.logits + kVocab) / page * page;
    std::vector<unsigned char> pages((end - begin) / page);
    EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()), 0);
    return std::ranges::count_if(pages, [](unsigned char p) { return (p & 1) != 0; });
  };
  RuledRequest request = Greedy();
  for (int i = 0; i < 5; ++i) sampler.SamplePlain(request, 0);
  EXPECT_EQ(resident(), 0);
  request.rules.presence_penalty = 1.0f;
  sampler.SampleOne(request, 0, kSlots - 2);
  EXPECT_GT(resident(), 50);
}

}  // namespace
}  // namespace spry::testing
