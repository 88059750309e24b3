#include "checkpoint/dummy_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tensor/float16.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace spry {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Draw(const Weights& weights, std::string_view name, const Shape& shape) {
  const Result<WeightHandle> weight = weights.Get(name, shape);
  EXPECT_TRUE(weight.ok()) << weight.status().message();
  return Values(*weight);
}

TEST(DummyWeights, DependOnSeedAndNameAlone) {
  const Shape shape{33, 31};
  const auto weights = MakeDummyWeights(DType::kF32, 5);
  const std::vector<float> a = Draw(*weights, "a.weight", shape);
  const std::vector<float> b = Draw(*weights, "b.weight", shape);
  EXPECT_NE(a, b);
  const auto again = MakeDummyWeights(DType::kF32, 5);
  EXPECT_EQ(Draw(*again, "b.weight", shape), b);  // in another order
  EXPECT_EQ(Draw(*again, "a.weight", shape), a);
  EXPECT_EQ(Draw(*again, "a.weight", shape), a);
  EXPECT_NE(Draw(*MakeDummyWeights(DType::kF32, 6), "a.weight", shape), a);
}

// The bits that every machine must make, from a second writing of the formula in Python.
TEST(DummyWeights, BitsAreTheSameEverywhere) {
  const auto weights = MakeDummyWeights(DType::kF32, 0);
  const std::vector<float> values = Draw(*weights, "model.embed_tokens.weight", Shape{5});
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  EXPECT_THAT(bits, ElementsAre(3159537264u, 983653276u, 1013373757u, 1012066102u, 3168469309u));
}

TEST(DummyWeights, SmallerTypesRoundTheSameNumbers) {
  const Shape shape{7, 1001};
  const std::vector<float> full = Draw(*MakeDummyWeights(DType::kF32, 9), "w", shape);
  const std::vector<float> bf16 = Draw(*MakeDummyWeights(DType::kBF16, 9), "w", shape);
  const std::vector<float> f16 = Draw(*MakeDummyWeights(DType::kF16, 9), "w", shape);
  for (size_t i = 0; i < full.size(); ++i) {
    ASSERT_EQ(bf16[i], Bf16ToFloat(FloatToBf16(full[i])));
    ASSERT_EQ(f16[i], F16ToFloat(FloatToF16(full[i])));
  }
}

TEST(DummyWeights, HaveTheMomentsOfAFreshModel) {
  const std::vector<float> values =
      Draw(*MakeDummyWeights(DType::kF32, 1), "w.weight", Shape{1000, 1000});
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  const double mean = sum / 1e6;
  EXPECT_NEAR(mean, 0.0, 5 * 0.02 / 1e3);  // five standard errors
  EXPECT_NEAR(std::sqrt(squares / 1e6), 0.02, 5e-5);
}

TEST(DummyWeights, NormsAreOneAndBiasesZero) {
  const auto weights = MakeDummyWeights(DType::kF16, 1);
  EXPECT_THAT(Draw(*weights, "model.norm.weight", Shape{9}), Each(1.0f));
  EXPECT_THAT(Draw(*weights, "model.decoder.layers.0.self_attn_layer_norm.weight", Shape{9}),
              Each(1.0f));
  EXPECT_THAT(Draw(*weights, "model.decoder.layers.0.fc1.bias", Shape{9}), Each(0.0f));
}

TEST(DummyWeights, ServeAConfigAlone) {
  const TemporaryFolder folder;
  const std::string config = ReadBytes(Golden("tiny-opt/config.json"));
  const std::filesystem::path file = folder.Write("config.json", config);
  for (const std::filesystem::path& path : {file, folder.path()}) {
    const auto opened = OpenCheckpoint(path, {.load_format = LoadFormat::kDummy, .seed = 3});
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    EXPECT_EQ(opened->format, "dummy");
    EXPECT_EQ(opened->vocab, nullptr);
    EXPECT_TRUE(opened->weights->List().empty());
    EXPECT_TRUE(opened->weights->Has("anything.weight"));
    EXPECT_EQ(opened->weights->Get("anything.weight", Shape{2, 2})->dtype, DType::kF16);
  }
}

TEST(DummyWeights, RefuseImpossibleShapes) {
  const auto weights = MakeDummyWeights(DType::kF32, 1);
  EXPECT_THAT(weights->Get("w", Shape{1 << 30, 1 << 30, 1 << 30}).status().message(),
              HasSubstr("dummy tensor 'w' of shape"));
  EXPECT_THAT(weights->Get("w", Shape{1 << 30, 1 << 30}).status().message(),
              HasSubstr("expected at most"));
}

}  // namespace
}  // namespace spry
