#include "device/null/null_device.h"

#include <gtest/gtest.h>

#include "base/allocation_counter.h"
#include "tests/device/tiny_model.h"

namespace spry::testing {
namespace {

class FakeClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_; }
  void Advance(int64_t nanos) { now_ += nanos; }

 private:
  int64_t now_ = 1000;
};

// The null device needs no more of a program than its vocabulary.
class NullDeviceTest : public ::testing::Test {
 protected:
  std::unique_ptr<Executable> Compile(const NullDeviceOptions& options, int ring_size) {
    device_ = MakeNullDevice(options);
    return *device_->Compile(program_, {.limits = TinyLimits({.ring_size = ring_size})});
  }

  Program program_ = TinyModel(/*seed=*/1).Trace(DType::kF32);
  std::unique_ptr<Device> device_;
};

const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5};

void StartRow(StepWriter& step, const RowParams& params) {
  step.Join(0, params);
  step.Prefill(0, kPrompt, 0, /*sample=*/true);
}

TEST_F(NullDeviceTest, TokensFollowFromTokenAndPosition) {
  const auto executable = Compile({}, /*ring_size=*/2);
  int32_t token = kPrompt.back();
  for (uint64_t i = 0; i < 6; ++i) {
    const StepId step(i);
    StepWriter writer(executable->Slot(step), step);
    if (i == 0) {
      StartRow(writer, {.max_outputs = 6});
    } else {
      writer.Decode(0);
    }
    ASSERT_TRUE(executable->Launch(step).ok());
    const RowResult& result = (*executable->Poll(step))->rows[0];
    const int32_t position = static_cast<int32_t>(kPrompt.size() - 1 + i);
    const int32_t expected = NullToken(token, position, TinyModel::kVocab);
    ASSERT_EQ(result.count, 1);
    EXPECT_EQ(result.tokens[0], TokenId(expected));
    EXPECT_GE(expected, TinyModel::kVocab / 2);
    EXPECT_LT(expected, TinyModel::kVocab);
    EXPECT_EQ(result.finish, i == 5 ? FinishReason::kLength : FinishReason::kNone);
    token = expected;
  }
  // Finished: padding from here.
  const StepId step(6);
  StepWriter writer(executable->Slot(step), step);
  writer.Decode(0);
  ASSERT_TRUE(executable->Launch(step).ok());
  EXPECT_EQ((*executable->Poll(step))->rows[0].count, 0);
}

TEST_F(NullDeviceTest, PartOfAPromptYieldsNothing) {
  const auto executable = Compile({}, /*ring_size=*/2);
  StepWriter writer(executable->Slot(StepId(0)), StepId(0));
  writer.Join(0, {.max_outputs = 6});
  writer.Prefill(0, kPrompt, 0, /*sample=*/false);
  ASSERT_TRUE(executable->Launch(StepId(0)).ok());
  EXPECT_EQ((*executable->Poll(StepId(0)))->rows[0].count, 0);
}

TEST_F(NullDeviceTest, StopIdsFinish) {
  const auto executable = Compile({}, /*ring_size=*/2);
  RowParams params{.max_outputs = 6, .num_stop_ids = 1};
  params.stop_ids[0] = TokenId(NullToken(5, 4, TinyModel::kVocab));
  StepWriter writer(executable->Slot(StepId(0)), StepId(0));
  StartRow(writer, params);
  ASSERT_TRUE(executable->Launch(StepId(0)).ok());
  EXPECT_EQ((*executable->Poll(StepId(0)))->rows[0].finish, FinishReason::kStop);
}

TEST_F(NullDeviceTest, PacedStepsQueueUp) {
  FakeClock clock;
  const auto executable = Compile({.step_nanos = 100, .clock = &clock}, /*ring_size=*/4);
  for (uint64_t i = 0; i < 3; ++i) {
    StepWriter writer(executable->Slot(StepId(i)), StepId(i));
    if (i == 0) {
      StartRow(writer, {.max_outputs = 9});
    } else {
      writer.Decode(0);
    }
    ASSERT_TRUE(executable->Launch(StepId(i)).ok());
  }
  const auto ready = [&](uint64_t step) { return *executable->Poll(StepId(step)) != nullptr; };
  EXPECT_FALSE(ready(0));
  clock.Advance(99);
  EXPECT_FALSE(ready(0));
  clock.Advance(1);
  EXPECT_TRUE(ready(0));
  EXPECT_FALSE(ready(1));  // one step after another, not all from their launch
  clock.Advance(100);
  EXPECT_TRUE(ready(1));
  EXPECT_FALSE(ready(2));
  clock.Advance(1000);
  EXPECT_TRUE(ready(2));
}

TEST_F(NullDeviceTest, StepsAllocateNothing) {
  const auto executable = Compile({}, /*ring_size=*/2);
  const uint64_t before = ThreadAllocations();
  for (uint64_t i = 0; i < 50; ++i) {
    StepWriter writer(executable->Slot(StepId(i)), StepId(i));
    if (i == 0) {
      StartRow(writer, {.max_outputs = 1000});
    } else {
      writer.Decode(0);
    }
    ASSERT_TRUE(executable->Launch(StepId(i)).ok());
    ASSERT_EQ((*executable->Poll(StepId(i)))->rows[0].count, 1);
  }
  EXPECT_EQ(ThreadAllocations(), before);
}

TEST_F(NullDeviceTest, HasNoLogits) {
  const auto executable = Compile({}, /*ring_size=*/2);
  std::vector<float> logits(1);
  EXPECT_EQ(executable->CopyLogits(logits).code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace spry::testing
