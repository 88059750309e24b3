// A NaN in the weights of q or k makes every attention score a NaN. The vector kernels' exponential
// turned a NaN into exp(-87), so the request went on with attention that saw nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

// Dummy weights, one of which has a NaN as its first element.
class OneNan final : public Weights {
 public:
  OneNan(std::shared_ptr<const Weights> base, std::string name)
      : base_(std::move(base)), name_(std::move(name)) {}

  bool Has(std::string_view name) const override { return base_->Has(name); }
  Result<WeightHandle> Get(std::string_view name, const Shape& expected) const override {
    Result<WeightHandle> handle = base_->Get(name, expected);
    if (!handle.ok() || name != name_) return handle;
    handle->read = [read = handle->read]() -> Result<HostTensor> {
      SPRY_ASSIGN_OR_RETURN(HostTensor tensor, read());
      auto bytes = std::make_shared<std::vector<std::byte>>(tensor.data.begin(), tensor.data.end());
      const float nan = std::nanf("");
      std::memcpy(bytes->data(), &nan, sizeof(nan));
      tensor.data = *bytes;
      tensor.owner = bytes;
      return tensor;
    };
    return handle;
  }
  std::vector<WeightHandle> List() const override { return base_->List(); }

 private:
  std::shared_ptr<const Weights> base_;
  std::string name_;
};

class NanScores : public ::testing::TestWithParam<std::tuple<CpuIsa, const char*>> {};

TEST_P(NanScores, EndTheRequestWithAnError) {
  const auto [isa, name] = GetParam();
  Result<std::unique_ptr<Device>> device = MakeCpuDevice({.threads = 1, .isa = isa});
  ASSERT_TRUE(device.ok()) << device.status().message();
  Checkpoint checkpoint = DummyCheckpoint(TinyLlamaConfig());
  checkpoint.weights = std::make_shared<OneNan>(checkpoint.weights, name);
  EngineOptions options;
  options.runner.memory = {.max_model_len = 64, .kv_bytes = 1 << 20};
  const Result<std::unique_ptr<Engine>> engine =
      Engine::Create(*std::move(device), checkpoint, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();

  GenerationRequest request;
  for (int i = 0; i < 20; ++i) request.prompt.emplace_back(i);
  request.sampling = {.temperature = 0.0, .max_tokens = 4};
  ASSERT_TRUE((*engine)->Submit(request).ok());
  FinishReason finish = FinishReason::kNone;
  while (!(*engine)->idle()) {
    const Result<std::span<const TokenEvent>> events = (*engine)->Step();
    ASSERT_TRUE(events.ok()) << events.status().message();
    for (const TokenEvent& event : *events) finish = event.finish;
  }
  EXPECT_EQ(finish, FinishReason::kError);
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, NanScores,
    ::testing::Combine(::testing::Values(CpuIsa::kReference, CpuIsa::kAuto),
                       ::testing::Values("model.layers.0.self_attn.q_proj.weight",
                                         "model.layers.0.self_attn.k_proj.weight",
                                         "model.layers.1.self_attn.v_proj.weight",
                                         "model.layers.1.mlp.gate_proj.weight",
                                         "model.embed_tokens.weight")));

}  // namespace
}  // namespace spry
