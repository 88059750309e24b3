// Logits against transformers, for tiny random models of every supported form (made by
// tools/make_model_goldens.py): whole prompts, prompts in chunks, decode, one and two in a batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "models/model.h"
#include "tests/models/golden.h"

namespace spry {
namespace {

class Golden : public testing::TestWithParam<std::tuple<std::string, CpuIsa>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }

  std::unique_ptr<Engine> MakeEngine(DType compute, int max_step_tokens, int block_size) {
    auto device = MakeCpuDevice({.threads = 2, .isa = std::get<1>(GetParam())});
    EXPECT_TRUE(device.ok()) << device.status().message();
    auto checkpoint = OpenCheckpoint(GoldenFolder(model()), {});
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EngineOptions options;
    options.runner.compute = compute;
    options.runner.memory = {.max_rows = 4,
                             .max_step_tokens = max_step_tokens,
                             .max_model_len = 100,
                             .block_size = block_size,
                             .kv_bytes = 1 << 20};
    auto engine = Engine::Create(*std::move(device), *checkpoint, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return *std::move(engine);
  }

  // Runs greedy requests, each a prefix of a golden sequence, and compares the logits of every
  // sampled position. Stops comparing a sequence once its token differs, which `exact` forbids.
  void Compare(Engine& engine, const GoldenModel& golden, std::span<const GoldenPrompt> prompts,
               std::span<const float> logits, float tolerance, bool exact) {
    const int vocab = golden.vocab_size;
    struct Progress {
      GoldenPrompt prompt;
      int outputs = 0;
    };
    std::map<RequestId, Progress> live;
    for (const GoldenPrompt& prompt : prompts) {
      GenerationRequest request;
      request.prompt = golden.Prefix(prompt);
      request.sampling = {.temperature = 0.0, .max_tokens = prompt.outputs, .ignore_eos = true};
      const auto id = engine.Submit(std::move(request));
      ASSERT_TRUE(id.ok()) << id.status().message();
      live[*id] = {prompt};
    }
    std::vector<float> got(4 * vocab);
    int compared = 0;
    while (!engine.idle()) {
      const auto events = engine.Step();
      ASSERT_TRUE(events.ok()) << events.status().message();
      if (events->empty()) continue;
      ASSERT_TRUE(engine.runner().CopyLogits(std::span(got).first(events->size() * vocab)).ok());
      for (size_t l = 0; l < events->size(); ++l) {
        const TokenEvent& event = (*events)[l];
        Progress& progress = live.at(event.request);
        if (progress.outputs < 0) continue;
        const int position = progress.prompt.length + progress.outputs - 1;
        const float* want = &logits[golden.LogitsOffset(progress.prompt.sequence, position)];
        float worst = 0.0f;
        for (int v = 0; v < vocab; ++v) {
          worst = std::max(worst, std::abs(got[l * vocab + v] - want[v]));
        }
        EXPECT_LE(worst, tolerance * golden.logit_range)
            << "sequence " << progress.prompt.sequence << " position " << position;
        ++compared;
        const bool same = event.token == golden.Token(progress.prompt.sequence, position + 1);
        // Inside the random part of a sequence the next token is not the model's choice.
        const bool chosen = position + 1 >= golden.prompt_length;
        EXPECT_TRUE(same || !exact || !chosen) << "position " << position;
        progress.outputs = same ? progress.outputs + 1 : -1;
      }
    }
    EXPECT_GE(compared, static_cast<int>(prompts.size()));
  }
};

TEST_P(Golden, F32WholePromptAndDecodeInABatch) {
  const GoldenModel golden = ReadGolden(model());
  auto engine = MakeEngine(DType::kF32, /*max_step_tokens=*/64, /*block_size=*/16);
  const GoldenPrompt prompts[] = {{0, 24, 23}, {1, 24, 23}, {1, 7, 1}};
  Compare(*engine, golden, prompts, golden.logits, 1e-3f, /*exact=*/true);
}

TEST_P(Golden, F32PromptInChunks) {
  const GoldenModel golden = ReadGolden(model());
  for (const int chunk : {1, 7, 16}) {
    auto engine = MakeEngine(DType::kF32, chunk, /*block_size=*/8);
    const GoldenPrompt prompts[] = {{0, 24, 5}, {1, 40, 5}};
    Compare(*engine, golden, prompts, golden.logits, 1e-3f, /*exact=*/true);
  }
}

TEST_P(Golden, Bf16) {
  const GoldenModel golden = ReadGolden(model());
  auto engine = MakeEngine(DType::kBF16, 64, 16);
  std::vector<GoldenPrompt> prompts;
  for (const int length : {1, 5, 12, 24, 31, 47}) {
    for (const int sequence : {0, 1}) prompts.push_back({sequence, length, 48 - length});
  }
  Compare(*engine, golden, prompts, golden.logits16, 3e-2f, /*exact=*/false);
}

std::vector<std::string> Models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenFolder(""))) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         testing::Combine(testing::ValuesIn(Models()),
                                          testing::Values(CpuIsa::kReference, CpuIsa::kAuto)),
                         [](const auto& instance) {
                           std::string name =
                               std::get<0>(instance.param) +
                               (std::get<1>(instance.param) == CpuIsa::kAuto ? "_auto"
                                                                             : "_reference");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(ModelsTest, AMissingOrMisshapenWeightIsNamed) {
  auto checkpoint = OpenCheckpoint(GoldenFolder("llama-gqa"), {});
  ASSERT_TRUE(checkpoint.ok());
  ModelConfig config = checkpoint->config;
  config.intermediate_size = 41;
  const auto misshapen = TraceModel(config, *checkpoint->weights, {.max_length = 64});
  ASSERT_FALSE(misshapen.ok());
  EXPECT_NE(misshapen.status().message().find("gate_proj.weight"), std::string::npos)
      << misshapen.status().message();
  EXPECT_NE(misshapen.status().message().find("41"), std::string::npos);
  config = checkpoint->config;
  config.num_layers = 3;
  const auto missing = TraceModel(config, *checkpoint->weights, {.max_length = 64});
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("model.layers.2."), std::string::npos)
      << missing.status().message();
}

TEST(ModelsTest, AnUnknownArchitectureIsNamedWithWhatIsSupported) {
  auto checkpoint = OpenCheckpoint(GoldenFolder("llama-gqa"), {});
  ASSERT_TRUE(checkpoint.ok());
  checkpoint->config.architecture = "MambaForCausalLM";
  const auto program = TraceModel(checkpoint->config, *checkpoint->weights, {});
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(program.status().message().find("LlamaForCausalLM"), std::string::npos);
}

}  // namespace
}  // namespace spry
