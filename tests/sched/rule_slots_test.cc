// Rule slots and held requests in the scheduler; the random runs (scheduler_random_test.cc) have
// them too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/allocation_counter.h"
#include "tests/sched/simulation.h"

namespace spry::testing {
namespace {

using ::testing::HasSubstr;
using Outcome = Scheduler::Outcome;

struct Limits {
  int slots = 1;
  int depth = 1;
  int max_step_tokens = 64;
};

Simulation Simulate(const Limits& limits) {
  const BlockPoolOptions pool{.num_blocks = 64, .block_size = 16};
  SchedulerOptions options{.max_rows = 8,
                           .max_step_tokens = limits.max_step_tokens,
                           .max_model_len = 112,
                           .max_steps_in_flight = limits.depth,
                           .max_rule_slots = limits.slots};
  options.max_block_writes = FewestBlockWrites(options, pool);
  return Simulation(pool, options);
}

enum class Rules { kNone, kPlain, kMask };

RequestSpec Spec(int id, Rules rules, int num_prompt = 5, int max_outputs = 20) {
  RequestSpec spec;
  spec.id = RequestId(id);
  for (int i = 0; i < num_prompt; ++i) spec.prompt.push_back(TokenId(1000 * (id + 1) + i));
  spec.params.max_outputs = max_outputs;
  if (rules != Rules::kNone) spec.rules = FakeRules(id + 2, rules == Rules::kMask);
  return spec;
}

void Launch(Simulation& simulation) {
  const Result<Outcome> outcome = simulation.Step();
  ASSERT_EQ(outcome.status().message(), "");
  ASSERT_EQ(*outcome, Outcome::kLaunch);
}

RequestState StateOf(const Simulation& simulation, int id) {
  return simulation.scheduler().Find(RequestId(id))->state;
}

TEST(RuleSlotsTest, RulesAreRefusedWhereThereAreNoSlots) {
  Simulation simulation = Simulate({.slots = 0});
  const Status status = simulation.Submit(Spec(0, Rules::kPlain));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("--max-rule-slots"));
  EXPECT_TRUE(simulation.Submit(Spec(1, Rules::kNone)).ok());
  EXPECT_EQ(simulation.Drain().message(), "");
}

TEST(RuleSlotsTest, ARequestWaitsForASlotAndThoseBehindItWait) {
  Simulation simulation = Simulate({.slots = 1});
  for (const auto& [id, rules] : {std::pair(0, Rules::kPlain), {1, Rules::kPlain}}) {
    ASSERT_TRUE(simulation.Submit(Spec(id, rules)).ok());
  }
  ASSERT_TRUE(simulation.Submit(Spec(2, Rules::kNone)).ok());
  Launch(simulation);
  EXPECT_EQ(StateOf(simulation, 0), RequestState::kRunning);
  EXPECT_EQ(StateOf(simulation, 1), RequestState::kWaiting);
  EXPECT_EQ(StateOf(simulation, 2), RequestState::kWaiting);
  ASSERT_TRUE(simulation.Commit().ok());
  ASSERT_TRUE(simulation.Cancel(RequestId(0)).ok());
  Launch(simulation);
  EXPECT_EQ(StateOf(simulation, 1), RequestState::kRunning);
  EXPECT_EQ(StateOf(simulation, 2), RequestState::kRunning);
  EXPECT_EQ(simulation.Drain().message(), "");
  EXPECT_EQ(simulation.outputs(RequestId(1)).size(), 20u);
}

// The image of a slot that was freed may still be copied by a step in flight.
TEST(RuleSlotsTest, ASlotIsGivenOnceTheStepThatCopiedItIsCommitted) {
  Simulation simulation = Simulate({.slots = 1, .depth = 4});
  ASSERT_TRUE(simulation.Submit(Spec(0, Rules::kPlain)).ok());
  ASSERT_TRUE(simulation.Submit(Spec(1, Rules::kNone)).ok());
  Launch(simulation);  // copies
  Launch(simulation);
  ASSERT_TRUE(simulation.Cancel(RequestId(0)).ok());
  ASSERT_TRUE(simulation.Submit(Spec(2, Rules::kPlain)).ok());
  Launch(simulation);
  EXPECT_EQ(StateOf(simulation, 2), RequestState::kWaiting);
  ASSERT_TRUE(simulation.Commit().ok());
  Launch(simulation);  // two steps of the old owner are still in flight, but no copy
  EXPECT_EQ(StateOf(simulation, 2), RequestState::kRunning);
  EXPECT_EQ(simulation.Drain().message(), "");
}

TEST(RuleSlotsTest, ARequestWithAMaskWaitsForItsTokenAndOthersRunAhead) {
  Simulation simulation = Simulate({.slots = 2, .depth = 8});
  ASSERT_TRUE(simulation.Submit(Spec(0, Rules::kMask)).ok());
  ASSERT_TRUE(simulation.Submit(Spec(1, Rules::kPlain)).ok());
  Launch(simulation);
  EXPECT_EQ(simulation.plan().rows.size(), 2u);
  EXPECT_TRUE(simulation.plan().mask_refreshes.empty());  // the join asked
  for (int i = 1; i < 8; ++i) {
    Launch(simulation);
    EXPECT_EQ(simulation.plan().rows.size(), 1u);
  }
  ASSERT_TRUE(simulation.Commit().ok());
  Launch(simulation);
  EXPECT_EQ(simulation.plan().rows.size(), 2u);
  ASSERT_EQ(simulation.plan().mask_refreshes.size(), 1u);
  EXPECT_EQ(simulation.plan().mask_refreshes[0].outputs.size(), 1u);
  EXPECT_EQ(simulation.Drain().message(), "");
}

// A held request's token of the budget is not given away for good.
TEST(RuleSlotsTest, HeldRequestsKeepTheirPlaceInTheBudget) {
  Simulation simulation = Simulate({.slots = 3, .depth = 3, .max_step_tokens = 3});
  for (int id = 0; id < 3; ++id) {
    ASSERT_TRUE(simulation.Submit(Spec(id, Rules::kMask, /*num_prompt=*/1)).ok());
  }
  for (int id = 3; id < 6; ++id) {
    ASSERT_TRUE(simulation.Submit(Spec(id, Rules::kNone, /*num_prompt=*/9)).ok());
  }
  EXPECT_EQ(simulation.Drain().message(), "");  // checks that nobody starves
}

TEST(RuleSlotsTest, SteadyStepsAllocateNothing) {
  BlockPool pool({.num_blocks = 64, .block_size = 4});
  SchedulerOptions options{
      .max_rows = 4, .max_step_tokens = 64, .max_model_len = 112, .max_rule_slots = 4};
  options.max_block_writes = 28 + 4;
  Scheduler scheduler(options, pool);
  for (int id = 0; id < 3; ++id) {
    const Rules rules = id == 0 ? Rules::kMask : Rules::kPlain;
    ASSERT_TRUE(scheduler.Submit(Spec(id, rules, 5, 100)).ok());
  }
  BatchPlan plan;
  std::vector<RowResult> results(3);
  for (RowResult& result : results) result.count = 1;
  const std::vector<TokenLogprobs> logprobs(3);
  std::vector<TokenEvent> events;
  events.reserve(8);
  uint64_t before = 0;
  for (int step = 0; step < 60; ++step) {
    if (step == 2) before = ThreadAllocations();
    ASSERT_EQ(scheduler.Schedule(plan), Outcome::kLaunch);
    ASSERT_EQ(plan.rows.size(), 3u);
    events.clear();
    scheduler.Commit({.rows = results, .logprobs = logprobs}, events);
  }
  EXPECT_EQ(ThreadAllocations() - before, 0u);
}

}  // namespace
}  // namespace spry::testing
