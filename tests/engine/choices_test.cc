// Several answers to one prompt.
#include "engine/choices.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "device/cpu/cpu_device.h"
#include "device/null/null_device.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

std::unique_ptr<Engine> MakeEngine(std::unique_ptr<Device> device, int max_waiting = 1000) {
  EngineOptions options;
  options.max_waiting = max_waiting;
  options.runner.memory = {.max_rows = 8,
                           .max_step_tokens = 64,
                           .max_model_len = 128,
                           .block_size = 8,
                           .kv_bytes = int64_t{4} << 20};
  auto engine = Engine::Create(std::move(device), DummyCheckpoint(TinyLlamaConfig()), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}
std::unique_ptr<Engine> CpuEngine() { return MakeEngine(*MakeCpuDevice({.threads = 2})); }

GenerationRequest Request(int n) {
  GenerationRequest request;
  for (int i = 0; i < 29; ++i) request.prompt.emplace_back(i * 5 % 300);
  request.sampling = {.n = n, .temperature = 1.0, .seed = 1, .max_tokens = 5, .ignore_eos = true};
  return request;
}

using Answers = std::vector<std::vector<int>>;

Answers Run(Engine& engine, const std::vector<RequestId>& ids) {
  std::map<RequestId, std::vector<int>> outputs;
  while (!engine.idle()) {
    const auto events = engine.Step();
    EXPECT_TRUE(events.ok()) << events.status().message();
    for (const TokenEvent& event : *events) {
      if (event.has_token) outputs[event.request].push_back(event.token.value());
    }
  }
  Answers answers;
  for (const RequestId id : ids) answers.push_back(outputs[id]);
  return answers;
}

Answers Ask(const GenerationRequest& request) {
  auto engine = CpuEngine();
  const auto ids = SubmitChoices(*engine, request);
  EXPECT_TRUE(ids.ok()) << ids.status().message();
  return Run(*engine, *ids);
}

size_t Different(const Answers& answers) {
  return std::set<std::vector<int>>(answers.begin(), answers.end()).size();
}

TEST(Choices, B044EachIsTheRequestWithItsOwnSeed) {
  const Answers answers = Ask(Request(4));
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_GE(Different(answers), 3u);
  for (int i = 0; i < 4; ++i) {
    GenerationRequest alone = Request(1);
    alone.sampling.seed = 1 + i;
    EXPECT_EQ(answers[i], Ask(alone).at(0)) << "choice " << i;
    EXPECT_EQ(answers[i].size(), 5u);
  }
}

TEST(Choices, B052WithoutASeedEachDrawsItsOwn) {
  GenerationRequest request = Request(5);
  request.sampling.seed.reset();
  request.sampling.temperature = 1.5;
  EXPECT_GE(Different(Ask(request)), 4u);
  // So do requests one after another.
  auto engine = CpuEngine();
  std::vector<RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(SubmitChoices(*engine, MakeChoice(request, 0))->at(0));
  EXPECT_GE(Different(Run(*engine, ids)), 4u);
}

TEST(Choices, GreedyOnesAreEqual) {
  GenerationRequest request = Request(3);
  request.sampling.temperature = 0.0;
  EXPECT_EQ(Different(Ask(request)), 1u);
}

// The prompt's three full blocks are computed by the first choice; the others, in the same step,
// compute the 5 tokens behind them.
TEST(Choices, ThePromptsFullBlocksAreComputedOnce) {
  auto engine = MakeEngine(MakeNullDevice({}));
  const auto ids = SubmitChoices(*engine, Request(4));
  ASSERT_TRUE(ids.ok());
  std::map<RequestId, int> cached;
  const auto events = engine->Step();
  for (const TokenEvent& event : *events) cached[event.request] = event.num_cached_tokens;
  ASSERT_EQ(cached.size(), 4u);
  EXPECT_EQ(cached[ids->at(0)], 0);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(cached[ids->at(i)], 24);
}

TEST(Choices, OnlyTheFirstBringsThePromptsLogprobs) {
  GenerationRequest request = Request(3);
  request.sampling.prompt_logprobs = 2;
  EXPECT_TRUE(MakeChoice(request, 0).sampling.prompt_logprobs.has_value());
  EXPECT_FALSE(MakeChoice(request, 1).sampling.prompt_logprobs.has_value());
  request.sampling.max_tokens = 0;
  EXPECT_TRUE(MakeChoice(request, 1).sampling.prompt_logprobs.has_value());
}

TEST(Choices, AllOrNoneGetIn) {
  auto engine = MakeEngine(MakeNullDevice({}), /*max_waiting=*/3);
  EXPECT_EQ(SubmitChoices(*engine, Request(4)).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(engine->idle());
  EXPECT_TRUE(SubmitChoices(*engine, Request(3)).ok());
  for (const int n : {0, -1, 129}) {
    const auto refused = SubmitChoices(*engine, Request(n));
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(refused.status().message().find("from 1 to 128"), std::string::npos);
  }
  EXPECT_EQ(engine->Submit(Request(2)).status().code(), StatusCode::kInvalidArgument);
}

TEST(Priority, NeedsItsPolicy) {
  auto engine = MakeEngine(MakeNullDevice({}));
  GenerationRequest request = Request(1);
  request.priority = -2;
  const auto refused = engine->Submit(request);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("--scheduling-policy priority"), std::string::npos);
}

}  // namespace
}  // namespace spry
