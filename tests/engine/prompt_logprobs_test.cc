// Log-probabilities of prompt tokens: each once and in order whatever happens, the same bits
// whatever runs beside it and however the prompt is cut, and those that decoding reports.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "device/cpu/cpu_device.h"
#include "device/null/null_device.h"
#include "engine/engine.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

bool Same(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.num_top == b.num_top && std::memcmp(&a, &b, offsetof(TokenLogprobs, top)) == 0 &&
         std::memcmp(a.top, b.top, a.num_top * sizeof(TokenLogprob)) == 0;
}

struct Judged {
  std::vector<TokenLogprobs> prompt;  // from the second token on
  std::vector<TokenLogprobs> outputs;
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
  int cached_tokens = 0;

  void Take(const TokenEvent& event) {
    if (!event.prompt_logprobs.empty()) {
      EXPECT_EQ(event.first_prompt_logprob, static_cast<int>(prompt.size()) + 1);
      prompt.insert(prompt.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
    }
    if (event.has_token) tokens.push_back(event.token);
    if (event.logprobs != nullptr) outputs.push_back(*event.logprobs);
    finish = event.finish;
    cached_tokens = event.num_cached_tokens;
  }
};

struct Conditions {
  const char* name = "";
  int max_step_tokens = 512;
  int neighbours = 0;
  int num_blocks = 2000;
  int run_ahead = 1;
  int threads = 2;
  bool warm = false;  // the same prompt ran before
};

constexpr int kMaxLen = 200;

GenerationRequest Scored(std::vector<TokenId> prompt) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling = {.temperature = 0.0, .max_tokens = 0, .prompt_logprobs = 20};
  return request;
}

class PromptLogprobs : public testing::TestWithParam<std::tuple<CpuIsa, DType>> {
 protected:
  std::unique_ptr<Engine> MakeEngine(const Conditions& c) {
    const auto [isa, compute] = GetParam();
    auto device = MakeCpuDevice({.threads = c.threads, .isa = isa});
    EXPECT_TRUE(device.ok()) << device.status().message();
    EngineOptions options;
    options.runner.compute = compute;
    const int64_t block_bytes = 16 * 2 * 2 * 32 * (compute == DType::kF32 ? 4 : 2);
    options.runner.memory = {.max_rows = 32,
                             .max_step_tokens = c.max_step_tokens,
                             .max_model_len = kMaxLen,
                             .kv_bytes = c.num_blocks * block_bytes,
                             .run_ahead = c.run_ahead};
    auto engine = Engine::Create(*std::move(device), DummyCheckpoint(TinyLlamaConfig()), options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return *std::move(engine);
  }

  static Judged Drain(Engine& engine, RequestId id) {
    Judged judged;
    while (!engine.idle()) {
      const auto events = engine.Step();
      EXPECT_TRUE(events.ok()) << events.status().message();
      for (const TokenEvent& event : *events) {
        if (event.request == id) judged.Take(event);
      }
    }
    return judged;
  }

  Judged Run(const GenerationRequest& request, const Conditions& c) {
    auto engine = MakeEngine(c);
    if (c.warm) Drain(*engine, *engine->Submit(request));
    std::mt19937 random(3);
    const auto neighbour = [&](int i) {
      GenerationRequest other;
      for (int t = 0; t < 1 + static_cast<int>(random() % 90); ++t) {
        other.prompt.emplace_back(random() % 300);
      }
      other.sampling = {.temperature = 1.1, .seed = i, .max_tokens = 50, .ignore_eos = true};
      if (i % 3 == 0) other.sampling.prompt_logprobs = 2;
      EXPECT_TRUE(engine->Submit(other).ok());
    };
    for (int i = 0; i < c.neighbours / 2; ++i) neighbour(i);
    const RequestId id = *engine->Submit(request);
    for (int i = c.neighbours / 2; i < c.neighbours; ++i) neighbour(i);
    Judged judged = Drain(*engine, id);
    if (c.num_blocks < 100) {
      EXPECT_GT(engine->stats().preemptions, 0u) << c.name;
    }
    return judged;
  }
};

TEST_P(PromptLogprobs, AreTheSameBitsUnderAllConditionsAndThoseOfDecoding) {
  GenerationRequest decode;
  for (int i = 0; i < 70; ++i) decode.prompt.emplace_back((i * i + 3) % 300);
  decode.sampling = {.temperature = 0.9, .seed = 5, .max_tokens = 60, .ignore_eos = true};
  decode.sampling.logprobs = 20;
  const Judged decoded = Run(decode, {});
  ASSERT_EQ(decoded.outputs.size(), 60u);

  std::vector<TokenId> whole = decode.prompt;
  whole.insert(whole.end(), decoded.tokens.begin(), decoded.tokens.end());
  const Judged alone = Run(Scored(whole), {});
  ASSERT_EQ(alone.prompt.size(), whole.size() - 1);
  for (size_t i = 0; i < alone.prompt.size(); ++i) {
    EXPECT_EQ(alone.prompt[i].chosen.token, whole[i + 1]);
  }
  for (size_t i = 0; i < decoded.outputs.size(); ++i) {
    EXPECT_TRUE(Same(alone.prompt[decode.prompt.size() - 1 + i], decoded.outputs[i]))
        << "output " << i;
  }
  const Conditions all[] = {
      {.name = "chunks of 7", .max_step_tokens = 32, .neighbours = 25},
      {.name = "chunks of 32, alone", .max_step_tokens = 32},
      {.name = "in 32", .neighbours = 31},
      {.name = "preempted", .neighbours = 31, .num_blocks = 30},
      {.name = "run-ahead 2", .neighbours = 9, .run_ahead = 2},
      {.name = "run-ahead 8, preempted", .neighbours = 31, .num_blocks = 30, .run_ahead = 8},
      {.name = "warm", .warm = true},
      {.name = "one thread", .threads = 1},
      {.name = "three threads", .neighbours = 5, .threads = 3},
  };
  for (const Conditions& c : all) {
    const Judged judged = Run(Scored(whole), c);
    EXPECT_EQ(judged.finish, FinishReason::kLength);
    EXPECT_EQ(judged.cached_tokens, 0) << c.name;
    ASSERT_EQ(judged.prompt.size(), alone.prompt.size()) << c.name;
    for (size_t i = 0; i < alone.prompt.size(); ++i) {
      ASSERT_TRUE(Same(judged.prompt[i], alone.prompt[i])) << c.name << ", token " << i + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, PromptLogprobs,
                         testing::Combine(testing::Values(CpuIsa::kReference, CpuIsa::kAuto),
                                          testing::Values(DType::kF32, DType::kBF16)));

// ---- on the null device, which names the token it judges ----

std::unique_ptr<Engine> NullEngine(int run_ahead, int num_blocks) {
  EngineOptions options;
  options.runner.memory = {.max_rows = 8,
                           .max_step_tokens = 96,
                           .max_model_len = 128,
                           .block_size = 8,
                           .kv_bytes = int64_t{num_blocks} << 10,
                           .run_ahead = run_ahead};
  auto engine = Engine::Create(MakeNullDevice({}), DummyCheckpoint(TinyLlamaConfig()), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

struct NullDepth : testing::TestWithParam<int> {};

// Many are aborted in the middle of their prompts, which others' prompts equal, and their rows are
// taken over; blocks are short, so that many are computed twice.
TEST_P(NullDepth, B064EachRequestGetsItsOwnOnce) {
  auto engine = NullEngine(GetParam(), /*num_blocks=*/30);
  std::mt19937 random(7);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::map<RequestId, GenerationRequest> live;
  std::map<RequestId, Judged> judged;
  int submitted = 0, finished = 0;
  while (submitted < 1500 || !engine->idle()) {
    if (submitted < 1500 && draw(0, 1) == 0) {
      std::vector<TokenId> prompt;
      const int family = draw(0, 3), length = draw(1, 120);
      for (int i = 0; i < length; ++i) prompt.emplace_back((family * 31 + i * 7) % 100);
      GenerationRequest request = Scored(prompt);
      request.sampling.max_tokens = draw(0, 1) * draw(1, 40);
      const auto id = engine->Submit(request);
      ASSERT_TRUE(id.ok()) << id.status().message();
      live[*id] = request;
      ++submitted;
    }
    if (!live.empty() && draw(0, 9) == 0) {
      const RequestId victim = std::next(live.begin(), draw(0, live.size() - 1))->first;
      EXPECT_TRUE(engine->Cancel(victim));
      live.erase(victim);
    }
    const auto events = engine->Step();
    ASSERT_TRUE(events.ok()) << events.status().message();
    for (const TokenEvent& event : *events) {
      ASSERT_TRUE(live.contains(event.request)) << "an event for a request that has ended";
      Judged& mine = judged[event.request];
      mine.Take(event);
      if (event.finish == FinishReason::kNone) continue;
      const GenerationRequest& request = live[event.request];
      ASSERT_EQ(mine.prompt.size(), request.prompt.size() - 1);
      for (size_t i = 0; i < mine.prompt.size(); ++i) {
        ASSERT_EQ(mine.prompt[i].chosen.token, request.prompt[i + 1]);
      }
      EXPECT_EQ(mine.outputs.size(), 0u);  // asked of the prompt alone
      live.erase(event.request);
      ++finished;
    }
    ASSERT_EQ(engine->CheckIntegrity().message(), "");
  }
  EXPECT_GT(finished, 500);
  EXPECT_GT(engine->stats().preemptions, 10u);
}

TEST_P(NullDepth, B028AScoredPromptHasNoOutput) {
  auto engine = NullEngine(GetParam(), /*num_blocks=*/64);
  for (const int length : {1, 2, 64, 65, 66, 128}) {  // 128: max_model_len itself
    std::vector<TokenId> prompt;
    for (int i = 0; i < length; ++i) prompt.emplace_back(i);
    const auto id = engine->Submit(Scored(prompt));
    ASSERT_TRUE(id.ok()) << id.status().message();
    Judged judged;
    while (!engine->idle()) {
      const auto events = engine->Step();
      for (const TokenEvent& event : *events) judged.Take(event);
    }
    EXPECT_EQ(judged.prompt.size(), prompt.size() - 1);
    EXPECT_TRUE(judged.tokens.empty());
    EXPECT_EQ(judged.finish, FinishReason::kLength);
  }
  EXPECT_FALSE(engine->Submit(Scored(std::vector<TokenId>(129))).ok());
  GenerationRequest no_output = Scored({TokenId(1)});
  no_output.sampling.prompt_logprobs.reset();
  EXPECT_EQ(engine->Submit(no_output).status().code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(RunAhead, NullDepth, testing::Values(1, 2, 8));

}  // namespace
}  // namespace spry
