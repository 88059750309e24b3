// Perplexity of a short text against transformers on the dequantised weights
// (tools/make_perplexity_golden.py).
#include "app/perplexity.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "device/cpu/cpu_device.h"
#include "tests/smollm2/demo_model.h"
#include "text/tokenizer.h"

namespace spry {
namespace {

std::string ReadGolden(const char* name) {
  std::ifstream file(std::string(SPRY_SOURCE_DIR "/tests/golden/") + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(SmolLM2, PerplexityIsThatOfTransformers) {
  const boost::json::value golden = boost::json::parse(ReadGolden("perplexity.json"));
  const auto tokenizer = Tokenizer::Create(*DemoModel().vocab);
  ASSERT_TRUE(tokenizer.ok());
  const std::vector<TokenId> tokens =
      (*tokenizer)->Encode(ReadGolden("perplexity.txt"), /*add_special_tokens=*/true);
  EXPECT_EQ(std::ssize(tokens), golden.at("tokens").as_int64());

  EngineOptions options;
  options.runner.compute = DType::kF32;
  options.runner.memory = {.max_rows = 4,
                           .max_step_tokens = 256,
                           .max_model_len = golden.at("window").as_int64(),
                           .kv_bytes = int64_t{100} << 20};
  auto engine = Engine::Create(*MakeCpuDevice({.threads = 2}), DemoModel(), options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto result =
      MeasurePerplexity(**engine, tokens, golden.at("window").as_int64(), std::nullopt);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->scored_tokens, golden.at("scored_tokens").as_int64());
  const double expected = golden.at("perplexity").as_double();
  EXPECT_NEAR(result->value, expected, 1e-3 * expected);
  EXPECT_NEAR(result->error, golden.at("error").as_double(), 1e-3 * expected);
}

}  // namespace
}  // namespace spry
