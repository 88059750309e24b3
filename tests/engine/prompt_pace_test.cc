#include "engine/prompt_pace.h"

#include <gtest/gtest.h>

#include <memory>

namespace spry {
namespace {

constexpr int kMaxStepTokens = 512;
constexpr int64_t kMilli = 1'000'000;

class HandClock final : public Clock {
 public:
  explicit HandClock(const int64_t& now) : now_(now) {}
  int64_t NowNanos() const override { return now_; }

 private:
  const int64_t& now_;
};

// A machine whose steps take `base` milliseconds and `per_token` more for each prompt token.
class PromptPaceTest : public testing::Test {
 protected:
  void RunStep(int num_prompt_tokens, double base, double per_token) {
    pace_.Launched(num_prompt_tokens);
    now_ += static_cast<int64_t>((base + per_token * num_prompt_tokens) * kMilli);
    pace_.Done();
  }

  int64_t now_ = kMilli;
  PromptPace pace_{std::make_unique<HandClock>(now_), kMaxStepTokens, /*max_steps_in_flight=*/1};
};

TEST_F(PromptPaceTest, IsModestUntilAStepWasSeen) {
  EXPECT_EQ(pace_.prompt_tokens(), 128);
  for (int i = 0; i < 100; ++i) RunStep(0, 5, 0);
  EXPECT_EQ(pace_.prompt_tokens(), 128);
  RunStep(kMaxStepTokens, 1, 0.01);  // of a time when nothing decoded
  EXPECT_EQ(pace_.prompt_tokens(), kMaxStepTokens);
}

TEST_F(PromptPaceTest, StepsSettleAtTheTimeAStreamMayWait) {
  RunStep(kMaxStepTokens, 3, 0.5);
  for (int i = 0; i < 50; ++i) RunStep(pace_.prompt_tokens(), 3, 0.5);
  // Around (60 - 3) / 0.5 = 114, in tiles of 16.
  for (int i = 0; i < 50; ++i) {
    EXPECT_GE(pace_.prompt_tokens(), 96);
    EXPECT_LE(pace_.prompt_tokens(), 144);
    RunStep(pace_.prompt_tokens(), 3, 0.5);
  }
}

TEST_F(PromptPaceTest, AFastMachineTakesAllOfTheBudget) {
  for (int i = 0; i < 10; ++i) RunStep(kMaxStepTokens, 1, 0.01);
  EXPECT_EQ(pace_.prompt_tokens(), kMaxStepTokens);
}

TEST_F(PromptPaceTest, ASlowMachineStillTakesATile) {
  for (int i = 0; i < 50; ++i) RunStep(pace_.prompt_tokens(), 1, 100);
  EXPECT_EQ(pace_.prompt_tokens(), 16);
}

TEST_F(PromptPaceTest, AModelWhoseDecodesAreSlowMayTakeHalfAsLongAgain) {
  for (int i = 0; i < 200; ++i) RunStep(0, 200, 0);
  for (int i = 0; i < 50; ++i) RunStep(pace_.prompt_tokens(), 200, 2);
  // Around (1.5 * 200 - 200) / 2 = 50.
  EXPECT_GE(pace_.prompt_tokens(), 48);
  EXPECT_LE(pace_.prompt_tokens(), 64);
}

TEST_F(PromptPaceTest, FollowsAMachineThatBecomesFaster) {
  for (int i = 0; i < 50; ++i) RunStep(pace_.prompt_tokens(), 1, 10);
  EXPECT_EQ(pace_.prompt_tokens(), 16);
  for (int i = 0; i < 50; ++i) RunStep(pace_.prompt_tokens(), 1, 0.1);
  EXPECT_EQ(pace_.prompt_tokens(), kMaxStepTokens);
}

// A short prompt in a long step looked expensive, got company no more, and looked so for ever.
TEST_F(PromptPaceTest, AStepThatTakesTheSameForAnyNumberTakesAll) {
  for (int i = 0; i < 10; ++i) RunStep(40, 50, 0);
  for (int i = 0; i < 30; ++i) RunStep(pace_.prompt_tokens(), 50, 0);
  EXPECT_EQ(pace_.prompt_tokens(), kMaxStepTokens);
}

TEST_F(PromptPaceTest, ShortPromptsSayNothingAboutTheCostOfAToken) {
  RunStep(256, 0, 0.5);
  ASSERT_EQ(pace_.prompt_tokens(), 112);
  const int before = pace_.prompt_tokens();
  for (int i = 0; i < 50; ++i) RunStep(2, 50, 0);
  EXPECT_EQ(pace_.prompt_tokens(), before);
}

// Two steps in flight: the second one's time begins when the first has ended.
TEST(PromptPace, StepsInFlightAreNotCountedTwice) {
  int64_t now = kMilli;
  PromptPace pace(std::make_unique<HandClock>(now), kMaxStepTokens, /*max_steps_in_flight=*/2);
  pace.Launched(100);
  for (int i = 0; i < 50; ++i) {
    pace.Launched(100);
    now += 100 * kMilli;
    pace.Done();
  }
  EXPECT_EQ(pace.prompt_tokens(), 48);  // of 60 in 60 ms, whole tiles
}

}  // namespace
}  // namespace spry
