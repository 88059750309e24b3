// An engine faster than the thread that takes its outputs filled memory with them, and a thread
// that took them never came to an end: it kept none of its sockets.
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "device/null/null_device.h"
#include "engine/async_engine.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

constexpr int kRows = 8;
constexpr int kTokens = 1000;
// Outputs that the engine may be ahead: the steps that async_engine.cc allows, and the one that it
// was in when they were full.
constexpr size_t kMostUnread = (4 + 1) * kRows;

class UnreadOutputs : public testing::Test {
 protected:
  void SetUp() override {
    ModelConfig config = TinyLlamaConfig();
    config.max_position = 2 * kTokens;
    EngineOptions options;
    options.runner.memory = {.max_rows = kRows,
                             .max_step_tokens = 64,
                             .max_model_len = 2 * kTokens,
                             .block_size = 16,
                             .kv_bytes = int64_t{64} << 20,
                             .run_ahead = 1};
    auto engine =
        Engine::Create(MakeNullDevice({.clock = &clock_}), DummyCheckpoint(config), options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    auto async = AsyncEngine::Start(*std::move(engine), {.max_live = kRows});
    ASSERT_TRUE(async.ok()) << async.status().message();
    engine_ = *std::move(async);
    for (int i = 0; i < kRows; ++i) {
      GenerationRequest request{.prompt = {TokenId(i + 3), TokenId(5)}};
      request.sampling.max_tokens = kTokens;
      request.sampling.ignore_eos = true;
      const auto ticket = engine_->Submit(std::move(request));
      ASSERT_TRUE(ticket.ok()) << ticket.status().message();
      tickets_.push_back(*ticket);
    }
  }

  // Until the engine has made no step for a while.
  void LetItRunAhead() {
    uint64_t before = 0, now = 1;
    while (now != before) {
      before = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      now = engine_->status().steps.tokens;
    }
  }

  void WaitForOutputs() {
    pollfd event{.fd = engine_->output_event(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&event, 1, /*milliseconds=*/30'000), 1) << "the engine has fallen asleep";
  }

  SteadyClock clock_;
  std::unique_ptr<AsyncEngine> engine_;
  std::vector<Ticket> tickets_;
};

TEST_F(UnreadOutputs, HoldTheEngineBackAndNoneIsLost) {
  std::map<Ticket, int> tokens;
  size_t most = 0;
  int finished = 0;
  for (int turn = 0; finished < kRows; ++turn) {
    if (turn < 3) LetItRunAhead();
    WaitForOutputs();
    std::vector<Output> outputs;
    engine_->TakeOutputs(outputs);
    most = std::max(most, outputs.size());
    for (const Output& output : outputs) {
      tokens[output.ticket] += output.has_token;
      finished += output.finish != FinishReason::kNone;
    }
  }
  EXPECT_GT(most, size_t{kRows});  // it did run ahead
  EXPECT_LE(most, kMostUnread);
  for (const Ticket ticket : tickets_) EXPECT_EQ(tokens[ticket], kTokens);
}

TEST_F(UnreadOutputs, ACancelIsTakenMeanwhile) {
  LetItRunAhead();
  for (const Ticket ticket : tickets_) EXPECT_TRUE(engine_->Cancel(ticket));
  for (int i = 0; i < 1000 && engine_->status().scheduler.running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(engine_->status().scheduler.running, 0);
}

TEST_F(UnreadOutputs, AnEngineThatWaitsCanBeEnded) {
  LetItRunAhead();
  engine_.reset();
}

}  // namespace
}  // namespace spry
