// The rope table of a model whose GGUF file carries factors for its frequencies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "checkpoint/dummy_weights.h"
#include "models/model.h"

namespace spry {
namespace {

constexpr int kHalf = 32;
constexpr double kTheta = 500000.0;

// Any weight but those of rope, which are what the test gives.
class WeightsWithFactors : public Weights {
 public:
  explicit WeightsWithFactors(std::map<std::string, std::vector<float>, std::less<>> factors)
      : factors_(std::move(factors)), others_(MakeDummyWeights(DType::kF32, /*seed=*/1)) {}

  bool Has(std::string_view name) const override {
    return factors_.contains(name) || others_->Has(name);
  }
  Result<WeightHandle> Get(std::string_view name, const Shape& shape) const override {
    const auto found = factors_.find(name);
    if (found == factors_.end()) return others_->Get(name, shape);
    const std::span<const std::byte> data = std::as_bytes(std::span(found->second));
    return WeightHandle{.name = std::string(name),
                        .dtype = DType::kF32,
                        .shape = shape,
                        .read = [=]() -> Result<HostTensor> {
                          return HostTensor{DType::kF32, shape, data, nullptr};
                        }};
  }
  std::vector<WeightHandle> List() const override { return {}; }

 private:
  std::map<std::string, std::vector<float>, std::less<>> factors_;
  std::shared_ptr<const Weights> others_;
};

ModelConfig TinyConfig(const RopeScaling& scaling) {
  return {.architecture = "LlamaForCausalLM",
          .vocab_size = 8,
          .hidden_size = 64,
          .intermediate_size = 32,
          .num_layers = 1,
          .num_heads = 1,
          .num_kv_heads = 1,
          .head_dim = 2 * kHalf,
          .max_position = 1 << 17,
          .rope_theta = kTheta,
          .rope_scaling = scaling};
}

struct RopeOfPair {
  double frequency = 0;
  double magnitude = 0;
};

Result<std::vector<RopeOfPair>> RopeOf(const ModelConfig& config, const Weights& weights,
                                       int64_t max_length = 64) {
  SPRY_ASSIGN_OR_RETURN(const Program program,
                        TraceModel(config, weights, {.max_length = max_length}));
  for (const WeightRecord& weight : program.weights) {
    if (weight.parts.front().name != "rope_table") continue;
    SPRY_ASSIGN_OR_RETURN(const HostTensor table, weight.parts.front().read());
    const float* row = reinterpret_cast<const float*>(table.data.data()) + 2 * kHalf;
    std::vector<RopeOfPair> pairs;  // of position 1
    for (int i = 0; i < kHalf; ++i) {
      pairs.push_back({std::atan2(row[kHalf + i], row[i]), std::hypot(row[i], row[kHalf + i])});
    }
    return pairs;
  }
  return NotFound("rope_table");
}

double Plain(int i) { return std::pow(kTheta, -2.0 * i / (2 * kHalf)); }

// B086: Llama 3.2's factors, as its GGUF files carry them, give what its config gives.
TEST(RopeFactors, FreqsAreLlama3Scaling) {
  constexpr double kFactor = 32, kLow = 1, kHigh = 4, kOriginal = 8192;
  std::vector<float> divisors;
  for (int i = 0; i < kHalf; ++i) {
    const double turns = kOriginal * Plain(i) / (2 * std::numbers::pi);
    const double smooth = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
    divisors.push_back(static_cast<float>(1.0 / ((1.0 - smooth) / kFactor + smooth)));
  }
  const auto from_file =
      RopeOf(TinyConfig({}), WeightsWithFactors({{"rope_freqs.weight", divisors}}));
  const auto from_config = RopeOf(TinyConfig({.kind = RopeScaling::Kind::kLlama3,
                                              .factor = kFactor,
                                              .low_freq_factor = kLow,
                                              .high_freq_factor = kHigh,
                                              .original_max_position = kOriginal}),
                                  WeightsWithFactors({}));
  ASSERT_TRUE(from_file.ok()) << from_file.status().message();
  ASSERT_TRUE(from_config.ok()) << from_config.status().message();
  for (int i = 0; i < kHalf; ++i) {
    const double f = (*from_file)[i].frequency;
    EXPECT_NEAR(f, (*from_config)[i].frequency, 1e-6 * f) << i;
    if (i >= 15 && i <= 17) {
      EXPECT_TRUE(f < 0.999 * Plain(i) && f > 1.01 * Plain(i) / kFactor) << i;
    } else {
      EXPECT_NEAR(f, i <= 14 ? Plain(i) : Plain(i) / kFactor, 1e-6 * f) << i;
    }
  }
}

// The long factors only for a context beyond the original one; attn_factor always.
TEST(RopeFactors, LongRopeChoosesByContext) {
  const WeightsWithFactors weights({{"rope_factors_long.weight", std::vector<float>(kHalf, 4.0f)},
                                    {"rope_factors_short.weight", std::vector<float>(kHalf, 2.0f)},
                                    {"rope_freqs.weight", std::vector<float>(kHalf, 100.0f)}});
  ModelConfig config =
      TinyConfig({.kind = RopeScaling::Kind::kLongRope, .original_max_position = 1000});
  config.rope_attention_factor = 1.25;
  for (const int64_t context : {999, 1000, 1001}) {
    const auto pairs = RopeOf(config, weights, context);
    ASSERT_TRUE(pairs.ok()) << pairs.status().message();
    const double divisor = context > 1000 ? 4.0 : 2.0;
    for (int i = 0; i < kHalf; ++i) {
      EXPECT_NEAR((*pairs)[i].frequency, Plain(i) / divisor, 1e-6 * Plain(i)) << context;
      EXPECT_NEAR((*pairs)[i].magnitude, 1.25, 1e-6);
    }
  }
}

// As llama.cpp: longrope without factors is plain rope, over `factor` if there is one.
TEST(RopeFactors, AbsentFactorsAreOnes) {
  const auto pairs = RopeOf(TinyConfig({.kind = RopeScaling::Kind::kLongRope, .factor = 2.0}),
                            WeightsWithFactors({}));
  ASSERT_TRUE(pairs.ok()) << pairs.status().message();
  for (int i = 0; i < kHalf; ++i) {
    EXPECT_NEAR((*pairs)[i].frequency, Plain(i) / 2, 1e-6 * Plain(i));
    EXPECT_NEAR((*pairs)[i].magnitude, 1.0, 1e-6);
  }
}

TEST(RopeFactors, MustBePositiveNumbers) {
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    std::vector<float> factors(kHalf, 1.0f);
    factors[7] = bad;
    const auto pairs = RopeOf(TinyConfig({}), WeightsWithFactors({{"rope_freqs.weight", factors}}));
    ASSERT_FALSE(pairs.ok());
    EXPECT_EQ(pairs.status().message(),
              "rope_freqs.weight holds a factor that is no positive number");
  }
}

}  // namespace
}  // namespace spry
