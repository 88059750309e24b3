// What AMX alone promises: the order of its sums, and weights of any size.
#include <cmath>
#include <limits>

#include "tensor/float16.h"
#include "tests/device_linear/linear_rig.h"

namespace spry {
namespace {

// None on a machine that lacks AMX.
std::vector<KernelVariant> AmxVariants() {
  std::vector<KernelVariant> variants = KernelVariants();
  std::erase_if(variants, [](const KernelVariant& variant) { return variant.name != "amx"; });
  return variants;
}

class AmxLinear : public testing::TestWithParam<KernelVariant> {};

float Bf16At(const std::vector<std::byte>& weight, int64_t i) {
  uint16_t bits;
  std::memcpy(&bits, &weight[2 * i], 2);
  return Bf16ToFloat(bits);
}

// As tiles.h says: for each 32 k, a chain of fma over the even k, one over the odd k, and their sum
// is added.
float ChainOfTiles(const std::vector<std::byte>& weight, int64_t row, const float* x, int64_t k) {
  float sum = 0.0f;
  for (int64_t begin = 0; begin < k; begin += 32) {
    float chains[2] = {};
    for (int64_t i = begin; i < std::min(begin + 32, k); ++i) {
      const float rounded = Bf16ToFloat(FloatToBf16(x[i]));
      chains[i % 2] = std::fma(rounded, Bf16At(weight, row * k + i), chains[i % 2]);
    }
    sum += chains[0] + chains[1];
  }
  return sum;
}

TEST_P(AmxLinear, SumsOfBf16AreTheChainThatTilesSay) {
  std::mt19937 random(3);
  for (const int64_t k : {1, 30, 32, 63, 64, 417, 1100}) {
    const LinearSpec spec = {.parts = {{DType::kBF16, 70}}, .k = k};
    const LinearWeights weights(spec, 7);
    LinearRig rig(spec, weights, GetParam().kernels, 2);
    for (const int32_t rows : {1, 5, 40}) {
      const std::vector<float> x = RandomRows(rows * k, random);
      const std::vector<float> y = rig.Run(x.data(), rows);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < spec.n(); ++n) {
          ASSERT_EQ(y[r * spec.n() + n], ChainOfTiles(weights.parts[0], n, &x[r * k], k))
              << "k " << k << ", row " << r << ", column " << n;
        }
      }
    }
  }
}

// One block of 32 in each of `rows` rows, all alike.
LinearWeights Q4_1Weights(const LinearSpec& spec, uint16_t d, uint16_t m, uint8_t codes) {
  LinearWeights weights(spec, 1);
  std::vector<std::byte>& bytes = weights.parts[0];
  for (size_t at = 0; at < bytes.size(); at += 20) {
    std::memcpy(&bytes[at], &d, 2);
    std::memcpy(&bytes[at + 2], &m, 2);
    std::memset(&bytes[at + 4], codes | codes << 4, 16);
  }
  return weights;
}

TEST_P(AmxLinear, WeightsOfAnySizeKeepEightBits) {
  const LinearSpec spec = {.parts = {{DType::kQ4_1, 33}}, .k = 64};
  const std::vector<float> x(spec.k, 1.5f);
  for (const float d : {0x1p-24f, 0x1p-14f, 0.01f, 1.0f, 60000.0f}) {
    for (const int code : {0, 1, 15}) {
      const uint16_t d_bits = FloatToF16(d), m_bits = FloatToF16(-d);
      const LinearWeights weights = Q4_1Weights(spec, d_bits, m_bits, static_cast<uint8_t>(code));
      const double expected = 1.5 * 64 * F16ToFloat(d_bits) * (code - 1);
      LinearRig rig(spec, weights, GetParam().kernels, 1);
      for (const float y : rig.Run(x.data(), 1)) {
        ASSERT_NEAR(y, expected, std::abs(expected) * 0x1p-7) << d << " times " << code;
      }
    }
  }
}

TEST_P(AmxLinear, ScalesThatAreNoNumbersShow) {
  const LinearSpec spec = {.parts = {{DType::kQ4_1, 33}}, .k = 64};
  const std::vector<float> x(spec.k, 1.0f);
  for (const uint16_t bad : {uint16_t{0x7c00}, uint16_t{0x7e01}}) {
    LinearWeights weights = Q4_1Weights(spec, FloatToF16(1.0f), 0, 3);
    std::memcpy(&weights.parts[0][20 * 2 * 32], &bad, 2);  // row 32
    LinearRig rig(spec, weights, GetParam().kernels, 1);
    ASSERT_FALSE(std::isfinite(rig.Run(x.data(), 1)[32]));
  }
}

// Rows far larger than any model's, and far smaller.
TEST_P(AmxLinear, ActivationsOfAnySizeKeepEightBits) {
  const LinearSpec spec = {.parts = {{DType::kQ4_1, 33}}, .k = 64};
  const uint16_t d = FloatToF16(0.01f), m = FloatToF16(-0.05f);
  const LinearWeights weights = Q4_1Weights(spec, d, m, 12);
  const double w = double{F16ToFloat(d)} * 12 + double{F16ToFloat(m)};
  LinearRig rig(spec, weights, GetParam().kernels, 1);
  for (const float value : {0x1p-80f, 1e-10f, 1.0f, 1e10f, 0x1p70f}) {
    const std::vector<float> x(spec.k, value);
    for (const float y : rig.Run(x.data(), 1)) {
      ASSERT_NEAR(y, 64 * w * value, std::abs(64 * w * value) * 0x1.4p-7) << value;
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(AmxLinear);
INSTANTIATE_TEST_SUITE_P(All, AmxLinear, testing::ValuesIn(AmxVariants()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace spry
