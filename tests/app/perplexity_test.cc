#include "app/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "device/cpu/cpu_device.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

constexpr int kWindow = 33;

std::unique_ptr<Engine> MakeEngine() {
  EngineOptions options;
  options.runner.memory = {
      .max_rows = 4, .max_step_tokens = 64, .max_model_len = kWindow, .kv_bytes = 1 << 20};
  auto engine =
      Engine::Create(*MakeCpuDevice({.threads = 2}), DummyCheckpoint(TinyLlamaConfig()), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

std::vector<TokenId> Text(int length) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < length; ++i) tokens.emplace_back((i * i * 7 + i) % 300);
  return tokens;
}

// Windows scored one by one, the formula written out.
TEST(PerplexityTest, IsThatOfTheSecondHalvesOfItsWindows) {
  const std::vector<TokenId> text = Text(3 * kWindow + 20);
  const TokenId bos(299);
  std::vector<double> scores;
  for (int w = 0; w < 3; ++w) {
    auto engine = MakeEngine();
    GenerationRequest request;
    request.prompt.assign(text.begin() + w * kWindow, text.begin() + (w + 1) * kWindow);
    request.prompt[0] = bos;
    request.sampling.max_tokens = 0;
    request.sampling.prompt_logprobs = 0;
    ASSERT_TRUE(engine->Submit(request).ok());
    std::vector<double> window = {0.0};
    while (!engine->idle()) {
      const auto events = engine->Step();
      for (const TokenEvent& event : *events) {
        for (const TokenLogprobs& entry : event.prompt_logprobs) {
          window.push_back(-entry.chosen.logprob);
        }
      }
    }
    ASSERT_EQ(window.size(), static_cast<size_t>(kWindow));
    scores.insert(scores.end(), window.begin() + kWindow / 2 + 1, window.end());
  }
  double mean = 0, squares = 0;
  for (const double score : scores) mean += score / static_cast<double>(scores.size());
  for (const double score : scores) squares += (score - mean) * (score - mean);
  const auto count = static_cast<double>(scores.size());

  auto engine = MakeEngine();
  const auto result = MeasurePerplexity(*engine, text, kWindow, bos);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->windows, 3);
  EXPECT_EQ(result->scored_tokens, 3 * 16);
  EXPECT_NEAR(result->nll, mean, 1e-9);
  EXPECT_NEAR(result->value, std::exp(mean), 1e-7);
  EXPECT_NEAR(result->error, std::exp(mean) * std::sqrt(squares / count / (count - 1)), 1e-6);
  EXPECT_GT(result->nll, 1.0);
  EXPECT_NE(MeasurePerplexity(*engine, text, kWindow, std::nullopt)->nll, result->nll);
}

TEST(PerplexityTest, ATextShorterThanAWindowIsRefused) {
  auto engine = MakeEngine();
  const auto refused = MeasurePerplexity(*engine, Text(kWindow - 1), kWindow, std::nullopt);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("32 tokens"), std::string::npos);
  EXPECT_NE(refused.status().message().find("--max-model-len"), std::string::npos);
  EXPECT_TRUE(MeasurePerplexity(*engine, Text(kWindow), kWindow, std::nullopt).ok());
}

}  // namespace
}  // namespace spry
