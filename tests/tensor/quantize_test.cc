#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "tensor/dequantize.h"

namespace spry {
namespace {

std::string ReadGolden(const std::string& name) {
  const std::filesystem::path folder =
      std::filesystem::path(SPRY_SOURCE_DIR) / "tests" / "golden" / "checkpoint";
  std::ifstream in(folder / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class Quantize : public testing::TestWithParam<DType> {
 protected:
  std::string Row(const std::vector<float>& row) const {
    const int64_t elements = static_cast<int64_t>(row.size());
    std::vector<std::byte> bytes(RowBytes(GetParam(), elements));
    if (!QuantizeRow(GetParam(), row.data(), elements, bytes.data())) return "refused";
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

// Bit for bit, as gguf.quants.quantize.
TEST_P(Quantize, IsGgmlsReference) {
  const std::string floats = ReadGolden("rows.f32");
  std::vector<float> rows(floats.size() / sizeof(float));
  ASSERT_GT(rows.size(), 2000u);
  std::memcpy(rows.data(), floats.data(), floats.size());
  const std::string expected = ReadGolden("rows." + std::string(Traits(GetParam()).name));
  const std::string bytes = Row(rows);
  ASSERT_EQ(bytes.size(), expected.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_EQ(bytes[i], expected[i]) << "block " << i / Traits(GetParam()).block_bytes;
  }
}

TEST_P(Quantize, RefusesWhatAScaleCannotHold) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity(), 1e7f, -3e38f}) {
    std::vector<float> row(64, 0.5f);
    row[40] = bad;
    EXPECT_EQ(Row(row), "refused") << bad;
  }
}

// Where 1 / d overflows. Nothing is undefined, and the values are zeros of some sign.
TEST_P(Quantize, TinyValuesBecomeZeros) {
  for (const float tiny : {1e-45f, 1e-40f, 1e-38f, 1e-12f}) {
    std::vector<float> row(32, tiny);
    row[3] = -tiny;
    row[4] = 0.0f;
    const std::string bytes = Row(row);
    ASSERT_NE(bytes, "refused");
    std::vector<float> values(32);
    DequantizeRow(GetParam(), reinterpret_cast<const std::byte*>(bytes.data()), 32, values.data());
    for (const float value : values) EXPECT_EQ(value, 0.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Quantize, testing::Values(DType::kQ4_0, DType::kQ8_0),
                         [](const testing::TestParamInfo<DType>& type) {
                           return std::string(Traits(type.param).name);
                         });

}  // namespace
}  // namespace spry
