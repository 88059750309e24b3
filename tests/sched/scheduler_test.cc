#include "sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/allocation_counter.h"
#include "tests/sched/simulation.h"

namespace spry::testing {
namespace {

using ::testing::HasSubstr;

RequestSpec Spec(int id, int num_prompt, int max_outputs) {
  RequestSpec spec{.id = RequestId(id), .prompt = {}, .params = {}, .cache_salt = {}};
  for (int i = 0; i < num_prompt; ++i) spec.prompt.push_back(TokenId(1000 * (id + 1) + i));
  spec.params.max_outputs = max_outputs;
  return spec;
}

struct Limits {
  int num_blocks = 100;
  int block_size = 16;
  int max_rows = 4;
  int max_step_tokens = 64;
  int max_model_len = 112;
  int depth = 1;
};

SchedulerOptions OptionsOf(const Limits& limits) {
  SchedulerOptions options{.max_rows = limits.max_rows,
                           .max_step_tokens = limits.max_step_tokens,
                           .max_model_len = limits.max_model_len,
                           .max_steps_in_flight = limits.depth,
                           .max_targets = 64};
  options.max_block_writes = FewestBlockWrites(options, {.block_size = limits.block_size});
  return options;
}

Simulation Simulate(const Limits& limits) {
  return Simulation({.num_blocks = limits.num_blocks, .block_size = limits.block_size},
                    OptionsOf(limits));
}

// A scheduler driven by hand-made results, for what no sane device would say.
class SchedulerTest : public ::testing::Test {
 protected:
  explicit SchedulerTest(const Limits& limits = {})
      : pool_({.num_blocks = limits.num_blocks, .block_size = limits.block_size}),
        scheduler_(OptionsOf(limits), pool_) {}

  static RowResult Token(int value) {
    RowResult result;
    result.count = 1;
    result.tokens[0] = TokenId(value);
    return result;
  }

  void Step() { ASSERT_EQ(scheduler_.Schedule(plan_), Scheduler::Outcome::kLaunch); }
  void Commit(std::vector<RowResult> results) {
    results_ = std::move(results);
    events_.clear();
    scheduler_.Commit({.rows = results_, .logprobs = logprobs_}, events_);
    ASSERT_EQ(scheduler_.CheckIntegrity().message(), "");
  }

  BlockPool pool_;
  Scheduler scheduler_;
  BatchPlan plan_;
  std::vector<RowResult> results_;
  std::vector<TokenLogprobs> logprobs_{4};
  std::vector<TokenEvent> events_;
};

TEST_F(SchedulerTest, RefusesAPromptWithoutRoomForAToken) {
  const Status status = scheduler_.Submit(Spec(0, 112, 1));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("112"));
  EXPECT_THAT(status.message(), HasSubstr("at most 111"));
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(SchedulerTest, CutsOutputsToTheLengthLimitAndTellsTheDevice) {
  ASSERT_TRUE(scheduler_.Submit(Spec(0, 100, 500)).ok());
  while (scheduler_.Find(RequestId(0))->state == RequestState::kWaiting) Step();
  ASSERT_EQ(plan_.joins.size(), 1u);
  EXPECT_EQ(plan_.joins[0].params->max_outputs, 12);
}

TEST_F(SchedulerTest, PromptsTakeWhatTheyMayBesideDecodesAndAllWhenNothingDecodes) {
  scheduler_.LimitPromptsBesideDecodes(10);
  ASSERT_TRUE(scheduler_.Submit(Spec(0, 40, 3)).ok());
  ASSERT_TRUE(scheduler_.Submit(Spec(1, 40, 3)).ok());
  ASSERT_TRUE(scheduler_.Submit(Spec(2, 40, 3)).ok());
  Step();  // nothing decodes yet: the whole budget of 64
  EXPECT_EQ(plan_.num_prompt_tokens, 64);
  Commit({Token(1), RowResult()});
  Step();  // one decodes; the second prompt goes on, the third is not let in
  ASSERT_EQ(plan_.rows.size(), 2u);
  EXPECT_TRUE(plan_.rows[0].decode);
  EXPECT_EQ(plan_.rows[1].num_tokens, 10);
  EXPECT_EQ(scheduler_.stats().waiting, 1);
}

TEST_F(SchedulerTest, AnEventCarriesTheDevicesWords) {
  ASSERT_TRUE(scheduler_.Submit(Spec(6, 5, 3)).ok());
  RequestSpec spec = Spec(7, 5, 3);
  spec.params.num_logprobs = 0;
  ASSERT_TRUE(scheduler_.Submit(std::move(spec)).ok());
  Step();
  Commit({Token(41), Token(42)});
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(events_[0].logprobs, nullptr);
  EXPECT_EQ(events_[1].request, RequestId(7));
  EXPECT_EQ(events_[1].token, TokenId(42));
  EXPECT_EQ(events_[1].logprobs, &logprobs_[1]);
  EXPECT_EQ(scheduler_.Find(RequestId(7))->tokens.back(), TokenId(42));
}

TEST_F(SchedulerTest, ADeviceThatLosesATokenFailsThatRequestAlone) {
  ASSERT_TRUE(scheduler_.Submit(Spec(0, 5, 3)).ok());
  ASSERT_TRUE(scheduler_.Submit(Spec(1, 5, 3)).ok());
  Step();
  Commit({RowResult(), Token(1)});
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_EQ(events_[0].finish, FinishReason::kError);
  EXPECT_FALSE(events_[0].has_token);
  EXPECT_EQ(events_[1].finish, FinishReason::kNone);
  EXPECT_EQ(scheduler_.stats().running, 1);
}

TEST_F(SchedulerTest, ARequestWhoseLogitsAreNotNumbersLeavesNoGeneratedBlockInTheCache) {
  ASSERT_TRUE(scheduler_.Submit(Spec(0, 15, 40)).ok());
  Step();
  Commit({Token(1)});
  Step();
  RowResult nan = Token(2);
  nan.fault = RowFault::kNan;
  Commit({nan});
  EXPECT_EQ(events_[0].finish, FinishReason::kError);
  RequestSpec again = Spec(0, 15, 1);
  again.id = RequestId(1);
  again.prompt.push_back(TokenId(1));
  again.prompt.push_back(TokenId(2));
  ASSERT_TRUE(scheduler_.Submit(std::move(again)).ok());
  Step();
  EXPECT_EQ(scheduler_.Find(RequestId(1))->num_cached_tokens, 0);
}

TEST_F(SchedulerTest, ANanAmongJudgedTokensFailsTheRequestAndTellsNothing) {
  RequestSpec spec = Spec(0, 10, 3);
  spec.params.num_prompt_logprobs = 0;
  ASSERT_TRUE(scheduler_.Submit(std::move(spec)).ok());
  Step();
  RowResult nan;
  nan.fault = RowFault::kNan;
  logprobs_.resize(10);
  Commit({nan});
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].finish, FinishReason::kError);
  EXPECT_TRUE(events_[0].prompt_logprobs.empty());
  EXPECT_TRUE(scheduler_.idle());
}

TEST_F(SchedulerTest, CountsWhatItLookedUpAndFound) {
  ASSERT_TRUE(scheduler_.Submit(Spec(0, 40, 1)).ok());
  Step();
  RowResult last = Token(1);
  last.finish = FinishReason::kLength;
  Commit({last});
  RequestSpec equal = Spec(0, 40, 1);
  equal.id = RequestId(1);
  ASSERT_TRUE(scheduler_.Submit(std::move(equal)).ok());
  Step();
  EXPECT_EQ(scheduler_.stats().prefix_query_tokens, 80u);
  EXPECT_EQ(scheduler_.stats().prefix_hit_tokens, 32u);
}

TEST(Scheduler, AResumedRowIsToldItsOutputs) {
  Simulation simulation =
      Simulate({.num_blocks = 4, .block_size = 4, .max_rows = 2, .max_model_len = 16});
  ASSERT_TRUE(simulation.Submit(Spec(0, 7, 3)).ok());
  ASSERT_TRUE(simulation.Submit(Spec(1, 7, 8)).ok());
  while (!simulation.scheduler().idle()) {
    ASSERT_TRUE(simulation.Step().ok());
    if (simulation.scheduler().stats().preemptions == 1 && !simulation.plan().joins.empty()) break;
    ASSERT_EQ(simulation.Commit().message(), "");
  }
  const RowJoin& join = simulation.plan().joins.at(0);
  EXPECT_EQ(join.num_outputs, 2);
  EXPECT_EQ(join.params->max_outputs, 8);
  EXPECT_EQ(simulation.Drain().message(), "");
}

// Rows decode for 100 steps of 4-token blocks: growth, hashes and publishing included, nothing is
// allocated, whatever the depth.
TEST(Scheduler, SteadyStepsAllocateNothing) {
  constexpr int kRows = 64;
  for (int depth : {1, 2, 8}) {
    const Limits limits{.num_blocks = kRows * 40,
                        .block_size = 4,
                        .max_rows = kRows,
                        .max_step_tokens = 512,
                        .max_model_len = 160,
                        .depth = depth};
    BlockPool pool({.num_blocks = limits.num_blocks, .block_size = limits.block_size});
    SchedulerOptions options = OptionsOf(limits);
    options.max_block_writes = 2 * kRows + kRows;  // so that all join in the first step
    Scheduler scheduler(options, pool);
    for (int id = 0; id < kRows; ++id) ASSERT_TRUE(scheduler.Submit(Spec(id, 5, 150)).ok());
    BatchPlan plan;
    std::vector<TokenEvent> events;
    events.reserve(kRows);
    std::vector<RowResult> results(kRows);
    for (RowResult& result : results) result.count = 1;

    uint64_t before = 0;
    for (int step = 0; step < 110; ++step) {
      if (step == 10) before = ThreadAllocations();
      ASSERT_EQ(scheduler.Schedule(plan), Scheduler::Outcome::kLaunch);
      if (scheduler.steps_in_flight() < depth) continue;
      events.clear();
      scheduler.Commit({.rows = results}, events);
      ASSERT_EQ(events.size(), static_cast<size_t>(kRows));
    }
    EXPECT_EQ(ThreadAllocations(), before) << "depth " << depth;
    EXPECT_GE(scheduler.Find(RequestId(0))->num_published, 24);
  }
}

// Aborted before its first token, a request has no output and no event.
TEST(SchedulerFaults, B016NoTokenNoOutput) {
  Simulation simulation = Simulate({.depth = 2});
  ASSERT_TRUE(simulation.Submit(Spec(0, 10, 5)).ok());
  ASSERT_TRUE(simulation.Step().ok());
  const Request& request = *simulation.scheduler().Find(RequestId(0));
  EXPECT_EQ(request.num_outputs(), 0);
  ASSERT_EQ(simulation.Cancel(RequestId(0)).message(), "");
  ASSERT_EQ(simulation.Commit().message(), "");
  EXPECT_TRUE(simulation.events().empty());
  EXPECT_TRUE(simulation.outputs(RequestId(0)).empty());
}

// One request is aborted in the middle of its chunked prompt and its row reused while its chunks
// are still in flight: what comes back for them reaches nobody.
TEST(SchedulerFaults, B064ARowsNextOwnerGetsItsOwnResults) {
  for (int depth : {1, 2, 8}) {
    Simulation simulation = Simulate({.max_rows = 1, .max_step_tokens = 8, .depth = depth});
    ASSERT_TRUE(simulation.Submit(Spec(0, 60, 4)).ok());
    for (int i = 0; i < depth; ++i) ASSERT_TRUE(simulation.Step().ok());
    ASSERT_TRUE(simulation.Submit(Spec(1, 12, 6)).ok());
    ASSERT_EQ(simulation.Cancel(RequestId(0)).message(), "");
    ASSERT_EQ(simulation.Drain().message(), "");
    EXPECT_TRUE(simulation.outputs(RequestId(0)).empty());
    EXPECT_EQ(simulation.outputs(RequestId(1)).size(), 6u);
  }
}

TEST(SchedulerFaults, B073PreemptionChangesNoToken) {
  std::vector<std::vector<TokenId>> outputs[2];
  for (int depth : {1, 2, 8}) {
    for (int num_blocks : {7, 100}) {
      Simulation simulation = Simulate({.num_blocks = num_blocks, .depth = depth});
      for (int id : {0, 1}) ASSERT_TRUE(simulation.Submit(Spec(id, 34, 35)).ok());
      ASSERT_EQ(simulation.Drain().message(), "");
      EXPECT_EQ(simulation.scheduler().stats().preemptions > 0, num_blocks == 7);
      EXPECT_EQ(simulation.pool().num_free(), num_blocks);
      for (int id : {0, 1}) outputs[id].push_back(simulation.outputs(RequestId(id)));
    }
  }
  for (const auto& runs : outputs) {
    for (const std::vector<TokenId>& run : runs) {
      EXPECT_EQ(run.size(), 35u);
      EXPECT_EQ(run, runs[0]);
    }
  }
}

// A request joins at step 10 and one leaves at step 20, with and without run-ahead.
TEST(SchedulerFaults, B077RunAheadChangesNoToken) {
  std::vector<std::vector<TokenId>> outputs[3];
  for (int depth : {1, 2, 8}) {
    Simulation simulation = Simulate({.depth = depth});
    for (int id : {0, 1}) ASSERT_TRUE(simulation.Submit(Spec(id, 9, id == 0 ? 20 : 32)).ok());
    for (int step = 0; !simulation.scheduler().idle(); ++step) {
      if (step == 10) {
        ASSERT_TRUE(simulation.Submit(Spec(2, 9, 32)).ok());
      }
      ASSERT_TRUE(simulation.Step().ok());
      const bool nothing_more = simulation.plan().rows.empty();
      if (!simulation.can_launch() || nothing_more) {
        ASSERT_EQ(simulation.Commit().message(), "");
      }
    }
    ASSERT_EQ(simulation.Drain().message(), "");
    for (int id : {0, 1, 2}) outputs[id].push_back(simulation.outputs(RequestId(id)));
  }
  for (const auto& runs : outputs) {
    EXPECT_GE(runs[0].size(), 20u);
    EXPECT_EQ(runs[1], runs[0]);
    EXPECT_EQ(runs[2], runs[0]);
  }
}

}  // namespace
}  // namespace spry::testing
