// A token depends on itself alone: one request's tokens and logits, bit for bit, whatever runs
// beside it and however its prompt is cut. Over the CPU's reference and fast kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

struct Conditions {
  const char* name;
  int max_step_tokens = 512;
  int neighbours = 0;
  int num_blocks = 2000;
  int run_ahead = 1;
  int threads = 2;
  int block_size = 16;
  bool prefix_caching = true;
  bool warm = false;  // the same prompt ran before, so that it is hit
};

constexpr int kPrompt = 70;
constexpr int kOutputs = 40;
constexpr int kMaxLen = 160;

struct Observed {
  std::vector<int> tokens;
  std::vector<std::vector<float>> logits;  // at run-ahead 1
  uint64_t preemptions = 0;
  int cached_tokens = 0;
};

GenerationRequest Target() {
  GenerationRequest request;
  for (int i = 0; i < kPrompt; ++i) request.prompt.emplace_back((i * i + 3) % 300);
  request.sampling = {.temperature = 0.9, .seed = 5, .max_tokens = kOutputs, .ignore_eos = true};
  return request;
}

GenerationRequest Neighbour(int i) {
  std::mt19937 random(i);
  GenerationRequest request;
  const int length = 1 + static_cast<int>(random() % 90);
  for (int t = 0; t < length; ++t) request.prompt.emplace_back(random() % 300);
  request.sampling = {.temperature = i % 2 == 0 ? 0.0 : 1.2,
                      .top_k = i % 3 == 0 ? 20 : 0,
                      .seed = i,
                      .max_tokens = 1 + static_cast<int>(random() % 60),
                      .ignore_eos = true};
  return request;
}

class Invariance : public testing::TestWithParam<std::tuple<CpuIsa, DType, bool>> {
 protected:
  std::unique_ptr<Engine> MakeEngine(const Conditions& c) {
    const auto [isa, compute, opt] = GetParam();
    auto device = MakeCpuDevice({.threads = c.threads, .isa = isa});
    EXPECT_TRUE(device.ok()) << device.status().message();
    EngineOptions options;
    options.prefix_caching = c.prefix_caching;
    options.runner.compute = compute;
    const int64_t token_bytes = 2 * 2 * (opt ? 64 : 32) * (compute == DType::kF32 ? 4 : 2);
    options.runner.memory = {.max_rows = 64,
                             .max_step_tokens = c.max_step_tokens,
                             .max_model_len = kMaxLen,
                             .block_size = c.block_size,
                             .kv_bytes = c.num_blocks * c.block_size * token_bytes,
                             .run_ahead = c.run_ahead};
    auto engine = Engine::Create(
        *std::move(device), DummyCheckpoint(opt ? TinyOptConfig() : TinyLlamaConfig()), options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return *std::move(engine);
  }

  static void Drain(Engine& engine, RequestId target, int depth, Observed& observed) {
    const int64_t vocab = engine.program().vocab_size;
    std::vector<float> logits(64 * vocab);
    while (!engine.idle()) {
      const auto events = engine.Step();
      ASSERT_TRUE(events.ok()) << events.status().message();
      for (size_t l = 0; l < events->size(); ++l) {
        if ((*events)[l].request != target) continue;
        observed.tokens.push_back((*events)[l].token.value());
        observed.cached_tokens = (*events)[l].num_cached_tokens;
        if (depth > 1) continue;
        ASSERT_TRUE(
            engine.runner().CopyLogits(std::span(logits).first(events->size() * vocab)).ok());
        const auto row = logits.begin() + l * vocab;
        observed.logits.emplace_back(row, row + vocab);
      }
    }
  }

  Observed Run(const Conditions& c) {
    auto engine = MakeEngine(c);
    Observed observed;
    if (c.warm) {
      Observed ignored;
      Drain(*engine, *engine->Submit(Target()), c.run_ahead, ignored);
    }
    for (int i = 0; i < c.neighbours / 2; ++i) EXPECT_TRUE(engine->Submit(Neighbour(i)).ok());
    const RequestId target = *engine->Submit(Target());
    for (int i = c.neighbours / 2; i < c.neighbours; ++i) {
      EXPECT_TRUE(engine->Submit(Neighbour(i)).ok());
    }
    Drain(*engine, target, c.run_ahead, observed);
    observed.preemptions = engine->stats().preemptions;
    return observed;
  }
};

TEST_P(Invariance, TokensAndLogitsAreTheSameBitsUnderAllConditions) {
  const Observed alone = Run({.name = "alone"});
  ASSERT_EQ(alone.tokens.size(), static_cast<size_t>(kOutputs));
  const Conditions all[] = {
      {.name = "in 64", .neighbours = 63},
      {.name = "chunked by 7", .max_step_tokens = 64, .neighbours = 57},
      {.name = "chunks of 7, alone", .max_step_tokens = 7},
      {.name = "chunks of 16, alone", .max_step_tokens = 16},
      {.name = "chunks of 64, alone", .max_step_tokens = 64},
      {.name = "preempted", .neighbours = 63, .num_blocks = 24},
      {.name = "cache off", .prefix_caching = false},
      {.name = "cache hit", .warm = true},
      {.name = "run-ahead 2", .neighbours = 20, .run_ahead = 2},
      {.name = "run-ahead 8", .neighbours = 20, .run_ahead = 8},
      {.name = "run-ahead 8, preempted", .neighbours = 63, .num_blocks = 24, .run_ahead = 8},
      {.name = "one thread", .threads = 1},
      {.name = "three threads", .neighbours = 5, .threads = 3},
      {.name = "blocks of 8", .neighbours = 9, .num_blocks = 4000, .block_size = 8},
      {.name = "blocks of 128", .neighbours = 9, .num_blocks = 400, .block_size = 128},
  };
  for (const Conditions& c : all) {
    const Observed observed = Run(c);
    EXPECT_EQ(observed.tokens, alone.tokens) << c.name;
    if (c.num_blocks < 100) {
      EXPECT_GT(observed.preemptions, 0u) << c.name;
    }
    if (c.warm) {
      EXPECT_GE(observed.cached_tokens, 64) << c.name;
    }
    if (c.run_ahead > 1) continue;
    ASSERT_EQ(observed.logits.size(), alone.logits.size()) << c.name;
    for (size_t i = 0; i < alone.logits.size(); ++i) {
      EXPECT_EQ(std::memcmp(observed.logits[i].data(), alone.logits[i].data(),
                            alone.logits[i].size() * sizeof(float)),
                0)
          << c.name << ", output " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Invariance,
                         testing::Combine(testing::Values(CpuIsa::kReference, CpuIsa::kAuto),
                                          testing::Values(DType::kF32, DType::kBF16),
                                          testing::Bool()));

}  // namespace
}  // namespace spry
