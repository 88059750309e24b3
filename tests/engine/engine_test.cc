// The whole host side on the null device, whose tokens are a known function of (token, position):
// any request that is fed a wrong token, position or row shows at once.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/allocation_counter.h"
#include "device/null/null_device.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

EngineOptions SmallOptions(int run_ahead, int num_blocks) {
  EngineOptions options;
  options.runner.memory = {.max_rows = 8,
                           .max_step_tokens = 64,
                           .max_model_len = 128,
                           .block_size = 8,
                           .kv_bytes = int64_t{num_blocks} << 10,
                           .run_ahead = run_ahead};
  return options;
}

std::unique_ptr<Engine> MakeEngine(const EngineOptions& options) {
  auto engine = Engine::Create(MakeNullDevice({}), DummyCheckpoint(TinyLlamaConfig()), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

GenerationRequest Request(std::vector<int> prompt, int max_tokens) {
  GenerationRequest request;
  for (const int id : prompt) request.prompt.emplace_back(id);
  request.sampling.max_tokens = max_tokens;
  return request;
}

std::vector<int> Oracle(const GenerationRequest& request, int vocab_size, int max_len) {
  std::vector<int> output;
  int token = request.prompt.back().value();
  int position = static_cast<int>(request.prompt.size()) - 1;
  while (static_cast<int>(output.size()) < request.sampling.max_tokens && position + 1 < max_len) {
    token = NullToken(token, position++, vocab_size);
    output.push_back(token);
  }
  return output;
}

struct Depth : testing::TestWithParam<int> {};

// 2,000 requests of random lengths join, leave and are cancelled at random, with so few blocks that
// preemption is frequent.
TEST_P(Depth, RandomTrafficGivesEachRequestItsOwnTokens) {
  auto engine = MakeEngine(SmallOptions(GetParam(), /*num_blocks=*/40));
  std::mt19937 random(42);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::map<RequestId, GenerationRequest> live;
  std::map<RequestId, std::vector<int>> outputs;
  int submitted = 0, finished = 0, cancelled = 0;
  while (submitted < 2000 || !engine->idle()) {
    if (submitted < 2000 && draw(0, 2) == 0) {
      std::vector<int> prompt(draw(1, 60));
      const int kind = draw(0, 4);  // prompts of one kind are prefixes of each other
      for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = kind + static_cast<int>(i % 7);
      const GenerationRequest request = Request(prompt, draw(1, 90));
      const auto id = engine->Submit(request);
      ASSERT_TRUE(id.ok()) << id.status().message();
      live[*id] = request;
      ++submitted;
    }
    if (!live.empty() && draw(0, 40) == 0) {
      const RequestId victim = std::next(live.begin(), draw(0, live.size() - 1))->first;
      EXPECT_TRUE(engine->Cancel(victim));
      live.erase(victim);
      ++cancelled;
    }
    const auto events = engine->Step();
    ASSERT_TRUE(events.ok()) << events.status().message();
    for (const TokenEvent& event : *events) {
      ASSERT_TRUE(live.contains(event.request)) << "an event for a request that has ended";
      if (event.has_token) outputs[event.request].push_back(event.token.value());
      if (event.finish == FinishReason::kNone) continue;
      EXPECT_EQ(event.finish, FinishReason::kLength);
      EXPECT_EQ(outputs[event.request], Oracle(live[event.request], 320, 128));
      live.erase(event.request);
      ++finished;
    }
    const Status integrity = engine->CheckIntegrity();
    ASSERT_TRUE(integrity.ok()) << integrity.message();
  }
  EXPECT_EQ(finished + cancelled, 2000);
  EXPECT_GT(engine->stats().preemptions, 10u);
  EXPECT_GT(engine->stats().prefix_hit_tokens, 1000u);
  EXPECT_TRUE(engine->ResetPrefixCache()) << "a block was still in use after the last request";
}

TEST_P(Depth, SteadyDecodeAllocatesNothing) {
  EngineOptions options = SmallOptions(GetParam(), /*num_blocks=*/256);
  auto engine = MakeEngine(options);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(engine->Submit(Request({1, 2, i}, 120)).ok());
  }
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine->Step().ok());  // joins, first tokens
  const uint64_t before = ThreadAllocations();
  int tokens = 0;
  for (int i = 0; i < 80; ++i) {  // ten blocks a row are added on the way
    const auto events = engine->Step();
    tokens += static_cast<int>(events->size());
  }
  EXPECT_EQ(ThreadAllocations() - before, 0u);
  EXPECT_EQ(tokens, 8 * 80);
}

TEST_P(Depth, StopIdsEndARequestEarlyAndItsLateStepsAreDropped) {
  auto engine = MakeEngine(SmallOptions(GetParam(), 64));
  GenerationRequest request = Request({5, 6}, 50);
  const std::vector<int> all = Oracle(request, 320, 128);
  request.sampling.stop_token_ids = {TokenId(all[9])};
  ASSERT_TRUE(engine->Submit(request).ok());
  std::vector<int> output;
  FinishReason finish = FinishReason::kNone;
  while (!engine->idle()) {
    const auto events = engine->Step();
    ASSERT_TRUE(events.ok());
    for (const TokenEvent& event : *events) {
      output.push_back(event.token.value());
      finish = event.finish;
    }
  }
  const auto stop = std::find(all.begin(), all.end(), all[9]);
  EXPECT_EQ(output, std::vector<int>(all.begin(), stop + 1));
  EXPECT_EQ(finish, FinishReason::kStop);
}

INSTANTIATE_TEST_SUITE_P(RunAhead, Depth, testing::Values(1, 2, 8));

// With run-ahead, the device's clock decides when results come; the engine must neither lose nor
// repeat a step while it waits.
TEST(EngineTest, WaitsForAPacedDevice) {
  SteadyClock clock;
  auto engine = Engine::Create(MakeNullDevice({.step_nanos = 200'000, .clock = &clock}),
                               DummyCheckpoint(TinyLlamaConfig()), SmallOptions(4, 64));
  ASSERT_TRUE(engine.ok());
  const GenerationRequest request = Request({9}, 40);
  ASSERT_TRUE((*engine)->Submit(request).ok());
  std::vector<int> output;
  const int64_t begin = clock.NowNanos();
  while (!(*engine)->idle()) {
    const auto events = (*engine)->Step();
    for (const TokenEvent& event : *events) output.push_back(event.token.value());
  }
  EXPECT_EQ(output, Oracle(request, 320, 128));
  EXPECT_GE(clock.NowNanos() - begin, 40 * 200'000);
}

TEST(EngineTest, BadRequestsAreRefusedByFieldAndDisturbNobody) {
  auto engine = MakeEngine(SmallOptions(1, 64));
  const GenerationRequest good = Request({1, 2, 3}, 20);
  ASSERT_TRUE(engine->Submit(good).ok());
  struct Case {
    GenerationRequest request;
    const char* words;
  };
  std::vector<Case> cases;
  const auto add = [&](const char* words, auto change) {
    GenerationRequest request = Request({1, 2}, 5);
    change(request);
    cases.push_back({request, words});
  };
  add("prompt is empty", [](auto& r) { r.prompt.clear(); });
  add("token id 320", [](auto& r) { r.prompt[0] = TokenId(320); });
  add("token id -1", [](auto& r) { r.prompt[1] = TokenId(-1); });
  add("128", [](auto& r) { r.prompt.assign(128, TokenId(1)); });
  add("temperature", [](auto& r) { r.sampling.temperature = -0.5; });
  add("temperature", [](auto& r) { r.sampling.temperature = NAN; });
  add("top_p", [](auto& r) { r.sampling.top_p = 0.0; });
  add("top_p", [](auto& r) { r.sampling.top_p = 1.5; });
  add("min_p", [](auto& r) { r.sampling.min_p = -0.1; });
  add("top_k", [](auto& r) { r.sampling.top_k = -2; });
  add("max_tokens", [](auto& r) { r.sampling.max_tokens = 0; });
  add("min_tokens", [](auto& r) { r.sampling.min_tokens = 6; });
  add("logprobs", [](auto& r) { r.sampling.logprobs = 1'000'000; });
  add("stop_token_ids", [](auto& r) { r.sampling.stop_token_ids = {TokenId(999'999)}; });
  for (const Case& c : cases) {
    const auto id = engine->Submit(c.request);
    ASSERT_FALSE(id.ok()) << c.words;
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(id.status().message().find(c.words), std::string::npos) << id.status().message();
  }
  std::vector<int> output;
  while (!engine->idle()) {
    const auto events = engine->Step();
    for (const TokenEvent& event : *events) output.push_back(event.token.value());
  }
  EXPECT_EQ(output, Oracle(good, 320, 128));
}

TEST(EngineTest, AFullQueueRefusesAndRecovers) {
  EngineOptions options = SmallOptions(1, 64);
  options.max_waiting = 3;
  auto engine = MakeEngine(options);
  int accepted = 0;
  StatusCode refusal = StatusCode::kOk;
  for (int i = 0; i < 20; ++i) {
    const auto id = engine->Submit(Request({i}, 2));
    if (id.ok()) {
      ++accepted;
    } else {
      refusal = id.status().code();
    }
  }
  EXPECT_EQ(accepted, 3);
  EXPECT_EQ(refusal, StatusCode::kResourceExhausted);
  while (!engine->idle()) ASSERT_TRUE(engine->Step().ok());
  EXPECT_TRUE(engine->Submit(Request({1}, 2)).ok());
}

TEST(EngineTest, APlanThatDoesNotFitIsRefusedWithNumbersAndFlag) {
  EngineOptions options = SmallOptions(1, /*num_blocks=*/4);
  const auto engine =
      Engine::Create(MakeNullDevice({}), DummyCheckpoint(TinyLlamaConfig()), options);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("128 tokens"), std::string::npos)
      << engine.status().message();
  EXPECT_NE(engine.status().message().find("--kv-cache-memory-bytes"), std::string::npos);
}

}  // namespace
}  // namespace spry
