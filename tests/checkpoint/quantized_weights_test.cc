#include "checkpoint/quantized_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "checkpoint/dummy_weights.h"
#include "tensor/quantize.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace spry {
namespace {

using ::testing::HasSubstr;

constexpr CheckpointOptions kDummyQ8 = {.load_format = LoadFormat::kDummy,
                                        .quantization = DType::kQ8_0};

// What QuantizeRow makes of the plain values is what is read, for dummies ...
TEST(QuantizedWeights, AreThePlainOnesRounded) {
  const Shape shape{5, 96};
  for (const DType plain_type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType dtype : {DType::kQ4_0, DType::kQ8_0}) {
      const auto plain = MakeDummyWeights(plain_type, 3);
      const auto quantized = MakeQuantizedWeights(plain, dtype);
      const Result<WeightHandle> handle = quantized->Get("w.weight", shape);
      ASSERT_TRUE(handle.ok()) << handle.status().message();
      EXPECT_EQ(handle->dtype, dtype);
      EXPECT_EQ(handle->file_type, dtype == DType::kQ4_0 ? "Q4_0" : "Q8_0");
      const Result<HostTensor> tensor = handle->read();
      ASSERT_TRUE(tensor.ok()) << tensor.status().message();
      EXPECT_EQ(tensor->dtype, dtype);
      EXPECT_EQ(tensor->shape, shape);
      const std::vector<float> values = Values(*plain->Get("w.weight", shape));
      std::vector<std::byte> expected(5 * RowBytes(dtype, 96));
      ASSERT_TRUE(QuantizeRow(dtype, values.data(), 5 * 96, expected.data()));
      EXPECT_TRUE(std::ranges::equal(tensor->data, expected));
    }
  }
}

// ... and for safetensors, where the error is that of 8 bits: half a step, and 127 times that of
// the f16 step.
TEST(QuantizedWeights, OfASafetensorsFolder) {
  const TemporaryFolder folder;
  std::filesystem::copy(Golden("tiny-opt"), folder.path() / "m");
  const auto plain = OpenCheckpoint(folder.path() / "m", {});
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  const auto opened = OpenCheckpoint(folder.path() / "m", {.quantization = DType::kQ8_0});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->format, "safetensors");
  EXPECT_EQ(opened->config.dtype, DType::kF16);
  std::map<std::string, std::string> types;
  for (const WeightHandle& weight : opened->weights->List()) {
    types[weight.name] = weight.file_type;
    if (weight.dtype != DType::kQ8_0) continue;
    const std::vector<float> before = Values(*plain->weights->Get(weight.name, weight.shape));
    const std::vector<float> after = Values(weight);
    for (size_t i = 0; i < before.size(); ++i) {
      const auto block = before.begin() + static_cast<ptrdiff_t>(i / 32 * 32);
      float largest = 0;
      for (auto x = block; x != block + 32; ++x) largest = std::max(largest, std::abs(*x));
      EXPECT_NEAR(after[i], before[i], largest / 127 * 0.57f);
    }
  }
  // Rows of 32 are whole blocks; those of 16 are not, and are refused when they are asked for.
  EXPECT_EQ(types["model.decoder.layers.0.fc2.weight"], "Q8_0");
  EXPECT_EQ(types["model.decoder.layers.0.fc1.weight"], "F16");
  EXPECT_EQ(types["model.decoder.embed_positions.weight"], "F16");
  EXPECT_EQ(types["model.decoder.layers.0.fc2.bias"], "F16");
  EXPECT_THAT(
      opened->weights->Get("model.decoder.layers.0.fc1.weight", {32, 16}).status().message(),
      HasSubstr("tensor 'model.decoder.layers.0.fc1.weight' has rows of 16 elements; "
                "--quantization q8_0 takes multiples of 32"));
}

TEST(QuantizedWeights, OnlyMatricesThatAreMultiplied) {
  const auto weights = MakeQuantizedWeights(MakeDummyWeights(DType::kBF16, 1), DType::kQ4_0);
  const auto type_of = [&](std::string_view name, const Shape& shape) {
    const Result<WeightHandle> handle = weights->Get(name, shape);
    return handle.ok() ? handle->dtype : DType::kU8;
  };
  EXPECT_EQ(type_of("model.embed_tokens.weight", Shape{8, 64}), DType::kQ4_0);
  EXPECT_EQ(type_of("lm_head.weight", Shape{8, 64}), DType::kQ4_0);
  EXPECT_EQ(type_of("model.norm.weight", Shape{64}), DType::kBF16);
  EXPECT_EQ(type_of("model.layers.0.mlp.up_proj.bias", Shape{64}), DType::kBF16);
  EXPECT_EQ(type_of("model.decoder.embed_positions.weight", Shape{8, 64}), DType::kBF16);
}

TEST(QuantizedWeights, NameTheTensorThatCannotBeRounded) {
  const std::vector<float> row(32, INFINITY);
  const TemporaryFolder folder;
  std::filesystem::copy(Golden("tiny-opt"), folder.path() / "m");
  std::string data(reinterpret_cast<const char*>(row.data()), 128);
  folder.Write("m/model.safetensors",
               SafetensorsBytes(R"({"w.weight":{"dtype":"F32","shape":[1,32],)"
                                R"("data_offsets":[0,128]}})",
                                data));
  const auto opened = OpenCheckpoint(folder.path() / "m", {.quantization = DType::kQ4_0});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_THAT(opened->weights->Get("w.weight", {1, 32})->read().status().message(),
              HasSubstr("tensor 'w.weight': row 0 has a value that is not finite"));
}

// float32 would make plain f32 products of them.
TEST(QuantizedWeights, ComputeInBfloat16WhereTheModelIsFloat32) {
  const TemporaryFolder folder;
  folder.Write("config.json", ReadBytes(Golden("tiny-llama") / "config.json"));
  const auto half = OpenCheckpoint(folder.path(), kDummyQ8);
  ASSERT_TRUE(half.ok()) << half.status().message();
  EXPECT_EQ(half->config.dtype, DType::kBF16);
  std::string text = ReadBytes(Golden("tiny-llama") / "config.json");
  const size_t at = text.find("bfloat16");
  ASSERT_NE(at, std::string::npos);
  folder.Write("config.json", text.replace(at, 8, "float32"));
  EXPECT_EQ(OpenCheckpoint(folder.path(), {.load_format = LoadFormat::kDummy})->config.dtype,
            DType::kF32);
  EXPECT_EQ(OpenCheckpoint(folder.path(), kDummyQ8)->config.dtype, DType::kBF16);
}

TEST(QuantizedWeights, NotOfAGgufFile) {
  EXPECT_THAT(
      OpenCheckpoint(Golden("types.gguf"), {.quantization = DType::kQ4_0}).status().message(),
      HasSubstr("types.gguf: --quantization is for folders and dummy weights"));
}

}  // namespace
}  // namespace spry
