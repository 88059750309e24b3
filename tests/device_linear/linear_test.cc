#include <cmath>
#include <limits>
#include <set>

#include "ops/math.h"
#include "tensor/block_codes.h"
#include "tests/device_linear/linear_rig.h"

namespace spry {
namespace {

constexpr float kUnit = 0x1p-24f;  // of an f32 rounding

// A weight's values, and for each |scale * code| + |minimum|, from which rounding errors follow.
struct Values {
  std::vector<float> w;
  std::vector<double> magnitudes;
};

Values ValuesOf(DType dtype, const std::vector<std::byte>& bytes, int64_t rows, int64_t k) {
  Values values = {.w = std::vector<float>(rows * k), .magnitudes = {}};
  for (int64_t r = 0; r < rows; ++r) {
    DequantizeRow(dtype, bytes.data() + r * RowBytes(dtype, k), k, &values.w[r * k]);
  }
  if (!IsQuantized(dtype)) {
    for (const float w : values.w) values.magnitudes.push_back(std::abs(w));
    return values;
  }
  const DTypeTraits& traits = Traits(dtype);
  for (size_t at = 0; at < bytes.size(); at += traits.block_bytes) {
    BlockCodes block;
    UnpackBlock(dtype, &bytes[at], block);
    for (int i = 0; i < traits.block_elements; ++i) {
      const int g = i / GroupElements(dtype);
      const double scale = double{F16ToFloat(block.d)} * block.scales[g];
      const double minimum = double{F16ToFloat(block.d_min)} * block.mins[g];
      const int code = UsesIq4Values(dtype) ? kIq4Values[block.codes[i]] : block.codes[i];
      values.magnitudes.push_back(std::abs(scale * code) + std::abs(minimum));
    }
  }
  return values;
}

// What a form makes of an element of a plain weight.
float AsForm(WeightForm form, float value) {
  if (form == WeightForm::kF16) return F16ToFloat(FloatToF16(value));
  if (form == WeightForm::kBF16) return Bf16ToFloat(FloatToBf16(value));
  return value;
}

// How a kernel takes the activations of a quantised weight.
enum class Rounding {
  kNone,  // int8, and they are whole numbers that it holds
  kInt8,
  kBf16,  // and the weights too
};

// A product in double with the most that f32 sums and rounded factors may be off.
struct Expected {
  double value = 0;
  double bound = 0;
};

struct Row {
  WeightForm form;
  const float* w;
  const double* magnitudes;
  int64_t k;
};

// int8: x = s q + e with |e| <= s / 2 (and a few roundings in s and x / s); the sum of the scale's
// group then takes at most 2 roundings, after 3 in each term.
// bf16: x and w have 8 bits; before that w is rounded to 11, as are its scale and its minimum.
// Every element is a term of the sum.
Expected Multiply(const Row& row, const float* x, Rounding rounding) {
  Expected expected;
  const bool quantized = IsQuantizedForm(row.form);
  double magnitude = 0;
  for (int64_t i = 0; i < row.k; ++i) {
    double value = x[i];
    if (row.form == WeightForm::kBF16) value = Bf16ToFloat(FloatToBf16(x[i]));
    const double w = AsForm(row.form, row.w[i]);
    expected.value += value * w;
    magnitude += std::abs(value) * row.magnitudes[i];
    if (quantized && rounding == Rounding::kBf16) {
      expected.bound += std::abs(value) * (std::abs(w) * 0x1.02p-7 + row.magnitudes[i] * 0x1p-10);
    }
    if (!quantized || rounding != Rounding::kInt8) continue;
    double largest = 0;
    for (int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
      largest = std::max(largest, std::abs(double{x[j]}));
    }
    expected.bound += std::abs(w) * largest / 127 * (0.5 + 127 * 4 * kUnit);
    magnitude += largest / 127 * row.magnitudes[i];
  }
  const double groups = static_cast<double>(row.k) / FactsOf(row.form).scale_group;
  const bool by_group = quantized && rounding != Rounding::kBf16;
  const double roundings = by_group ? 2.0 * groups + 6 : row.k + 2.0;
  expected.bound += magnitude * roundings * kUnit;
  return expected;
}

void ExpectProduct(const LinearSpec& spec, const LinearWeights& weights,
                   const std::vector<float>& x, const std::vector<float>& y, Rounding rounding) {
  const int64_t rows = static_cast<int64_t>(x.size()) / spec.k;
  int64_t column = 0;
  for (size_t p = 0; p < spec.parts.size(); ++p) {
    const Part& part = spec.parts[p];
    const Values values = ValuesOf(part.dtype, weights.parts[p], part.rows, spec.k);
    for (int64_t n = 0; n < part.rows; ++n, ++column) {
      const Row row = {FormOf(part.dtype, spec.compute), &values.w[n * spec.k],
                       &values.magnitudes[n * spec.k], spec.k};
      for (int64_t r = 0; r < rows; ++r) {
        const Expected expected = Multiply(row, &x[r * spec.k], rounding);
        ASSERT_NEAR(y[r * spec.n() + column], expected.value, expected.bound)
            << "row " << r << " column " << column;
      }
    }
  }
}

// Whole numbers whose largest magnitude in a group is 127: int8 holds them without error.
std::vector<float> ExactRows(int64_t elements, std::mt19937& random) {
  std::vector<float> x(elements);
  for (int64_t i = 0; i < elements; ++i) {
    x[i] = i % 32 == 5 ? (random() % 2 != 0 ? 127.0f : -127.0f)
                       : static_cast<float>(static_cast<int>(random() % 255) - 127);
  }
  return x;
}

bool SameBits(const float* a, const float* b, int64_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

struct FormCase {
  std::string name;
  DType dtype;
  DType compute;
};
const FormCase kForms[] = {
    {"f32", DType::kF32, DType::kF32},
    {"f32_from_bf16", DType::kBF16, DType::kF32},
    {"f32_from_q4_1", DType::kQ4_1, DType::kF32},
    {"f16", DType::kF16, DType::kF16},
    {"f16_from_f32", DType::kF32, DType::kF16},
    {"bf16", DType::kBF16, DType::kBF16},
    {"bf16_from_f16", DType::kF16, DType::kBF16},
    {"q8_0", DType::kQ8_0, DType::kBF16},
    {"q4_0", DType::kQ4_0, DType::kBF16},
    {"q4_1", DType::kQ4_1, DType::kF16},
    {"q5_0", DType::kQ5_0, DType::kBF16},
    {"q5_1", DType::kQ5_1, DType::kBF16},
    {"q2_k", DType::kQ2_K, DType::kBF16},
    {"q3_k", DType::kQ3_K, DType::kBF16},
    {"q4_k", DType::kQ4_K, DType::kF16},
    {"q5_k", DType::kQ5_K, DType::kBF16},
    {"q6_k", DType::kQ6_K, DType::kBF16},
    {"iq4_nl", DType::kIQ4_NL, DType::kBF16},
    {"iq4_xs", DType::kIQ4_XS, DType::kBF16},
};

Rounding RoundingOf(const KernelVariant& variant) {
  return variant.bf16_products ? Rounding::kBf16 : Rounding::kInt8;
}

class LinearForms : public testing::TestWithParam<std::tuple<KernelVariant, FormCase>> {
 protected:
  const KernelVariant& variant() const { return std::get<0>(GetParam()); }
  const LinearKernels& kernels() const { return variant().kernels; }
  // k is rounded up to whole blocks.
  LinearSpec Spec(int64_t n, int64_t k) const {
    const FormCase& form = std::get<1>(GetParam());
    const int64_t block = Traits(form.dtype).block_elements;
    k = (k + block - 1) / block * block;
    return {.parts = {{form.dtype, n}}, .k = k, .compute = form.compute};
  }
};

TEST_P(LinearForms, ProductIsWithinBounds) {
  std::mt19937 random(7);
  for (const int64_t n : {1, 15, 16, 31, 32, 33, 65, 192}) {
    std::set<int64_t> done;
    for (const int64_t least_k : {1, 3, 31, 32, 64, 129, 576}) {
      const LinearSpec spec = Spec(n, least_k);
      const int64_t k = spec.k;
      if (!done.insert(k).second) continue;
      const LinearWeights weights(spec, static_cast<uint32_t>(n * 1000 + k));
      LinearRig rig(spec, weights, kernels(), 1);
      for (const int32_t rows : {1, 2, 7, 13}) {
        const std::vector<float> x = RandomRows(rows * k, random);
        const Rounding rounding = RoundingOf(variant());
        ExpectProduct(spec, weights, x, rig.Run(x.data(), rows), rounding);
        const std::vector<float> whole = ExactRows(rows * k, random);
        const bool exact = rounding == Rounding::kInt8 && k % 32 == 0;
        ExpectProduct(spec, weights, whole, rig.Run(whole.data(), rows),
                      exact ? Rounding::kNone : rounding);
      }
    }
  }
}

TEST_P(LinearForms, RowsDoNotDependOnTheirNumberOrNeighbours) {
  std::mt19937 random(11);
  constexpr int32_t kRows = 512;
  const LinearSpec spec = Spec(97, 430);
  const LinearWeights weights(spec, 3);
  LinearRig rig(spec, weights, kernels(), 1);
  const std::vector<float> x = RandomRows(kRows * spec.k, random);
  const std::vector<float> all = rig.Run(x.data(), kRows);
  std::vector<int32_t> counts = {257};
  for (int32_t m = 1; m <= 130; ++m) counts.push_back(m);
  for (const int32_t m : counts) {
    const int32_t first = m * 7 % (kRows - m + 1);
    const std::vector<float> some = rig.Run(&x[first * spec.k], m);
    ASSERT_TRUE(SameBits(some.data(), &all[first * spec.n()], m * spec.n())) << m << " rows";
  }
}

TEST_P(LinearForms, WorkersDoNotChangeBits) {
  std::mt19937 random(13);
  const LinearSpec spec = Spec(97, 430);
  const LinearWeights weights(spec, 4);
  const std::vector<float> x = RandomRows(200 * spec.k, random);
  LinearRig one(spec, weights, kernels(), 1);
  for (const int workers : {2, 3}) {
    LinearRig rig(spec, weights, kernels(), workers);
    for (const int32_t m : {1, 3, 64, 200}) {
      ASSERT_EQ(one.Run(x.data(), m), rig.Run(x.data(), m)) << workers << " workers, " << m;
    }
  }
}

TEST_P(LinearForms, TinyActivationsCountAsZero) {
  const LinearSpec spec = Spec(40, 96);
  const LinearWeights weights(spec, 12);
  LinearRig rig(spec, weights, kernels(), 2);
  const std::vector<float> x(spec.k, 1e-38f);
  for (const float y : rig.Run(x.data(), 1)) ASSERT_NEAR(y, 0.0f, 1e-34f);
}

TEST_P(LinearForms, EpilogueGivesTheBitsOfItsFormula) {
  std::mt19937 random(19);
  const LinearSpec plain = Spec(75, 64);
  const LinearWeights weights(plain, 6);
  const std::vector<float> x = RandomRows(9 * plain.k, random);
  const std::vector<float> residual = RandomRows(9 * plain.n(), random);
  const std::vector<float> product = LinearRig(plain, weights, kernels(), 2).Run(x.data(), 9);
  for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kSilu}) {
    for (const int parts : {0, 1, 2, 3}) {
      LinearSpec spec = plain;
      spec.activation = activation;
      spec.bias = (parts & 1) != 0;
      spec.residual = (parts & 2) != 0;
      LinearRig rig(spec, weights, kernels(), 2);
      const std::vector<float> y = rig.Run(x.data(), 9, residual.data());
      for (size_t i = 0; i < y.size(); ++i) {
        float expected = product[i];
        if (spec.bias) expected += weights.bias[i % spec.n()];
        if (activation == Activation::kRelu) expected = expected < 0.0f ? 0.0f : expected;
        if (activation == Activation::kSilu) expected = Silu(expected);
        if (spec.residual) expected += residual[i];
        ASSERT_TRUE(SameBits(&y[i], &expected, 1)) << i << ": " << y[i] << " " << expected;
      }
    }
  }
}

TEST_P(LinearForms, NotANumberStaysInItsRow) {
  std::mt19937 random(23);
  const LinearSpec spec = Spec(40, 96);
  const LinearWeights weights(spec, 8);
  LinearRig rig(spec, weights, kernels(), 2);
  std::vector<float> x = RandomRows(8 * spec.k, random);
  const std::vector<float> clean = rig.Run(x.data(), 8);
  x[2 * spec.k + 70] = std::numeric_limits<float>::quiet_NaN();
  x[5 * spec.k + 1] = std::numeric_limits<float>::infinity();
  const std::vector<float> y = rig.Run(x.data(), 8);
  for (int64_t r = 0; r < 8; ++r) {
    for (int64_t n = 0; n < spec.n(); ++n) {
      const float value = y[r * spec.n() + n];
      if (r == 2) {
        ASSERT_TRUE(std::isnan(value));
      } else if (r == 5) {
        ASSERT_FALSE(std::isfinite(value));
      } else {
        ASSERT_EQ(value, clean[r * spec.n() + n]);
      }
    }
  }
}

std::string NameOf(const testing::TestParamInfo<LinearForms::ParamType>& info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(All, LinearForms,
                         testing::Combine(testing::ValuesIn(KernelVariants()),
                                          testing::ValuesIn(kForms)),
                         NameOf);

class StackedLinear : public testing::TestWithParam<KernelVariant> {};

TEST_P(StackedLinear, PartsOfDifferentTypesKeepTheirPlaces) {
  const LinearSpec spec = {.parts = {{DType::kQ4_1, 33},
                                     {DType::kBF16, 20},
                                     {DType::kQ8_0, 64},
                                     {DType::kQ4_0, 1},
                                     {DType::kQ6_K, 40},
                                     {DType::kQ4_K, 33}},
                           .k = 256};
  const LinearWeights weights(spec, 9);
  std::mt19937 random(29);
  for (const int workers : {1, 2, 5}) {
    LinearRig rig(spec, weights, GetParam().kernels, workers);
    for (const int32_t rows : {1, 6, 40}) {
      const std::vector<float> x = RandomRows(rows * spec.k, random);
      ExpectProduct(spec, weights, x, rig.Run(x.data(), rows), RoundingOf(GetParam()));
    }
  }
}

// The gate is the row kernels' of the same products.
TEST_P(StackedLinear, GatedGivesTheBitsOfItsFormula) {
  constexpr int32_t kRows = 520;  // more than the products that lie near a core
  constexpr int64_t kGateRows = 80, kK = 96;
  LinearSpec spec = {
      .parts = {{DType::kQ4_1, kGateRows}, {DType::kQ8_0, kGateRows}}, .k = kK, .bias = true};
  const LinearWeights weights(spec, 21);
  std::mt19937 random(22);
  const std::vector<float> x = RandomRows(kRows * kK, random);
  LinearRig plain(spec, weights, GetParam().kernels, 1);
  const std::vector<float> products = plain.Run(x.data(), kRows);
  std::vector<float> expected(kRows * kGateRows);
  for (int32_t r = 0; r < kRows; ++r) {
    const float* gate = &products[r * spec.n()];
    Avx2RowKernels().activate[static_cast<int>(Activation::kSilu)](
        gate, gate + kGateRows, kGateRows, &expected[r * kGateRows]);
  }
  spec.gated = true;
  spec.activation = Activation::kSilu;
  for (const int workers : {1, 2, 3}) {
    LinearRig gated(spec, weights, GetParam().kernels, workers);
    for (const int32_t rows : {1, 2, 17, 40, kRows}) {
      const std::vector<float> y = gated.Run(x.data(), rows);
      ASSERT_TRUE(SameBits(y.data(), expected.data(), rows * kGateRows)) << rows << " rows";
    }
  }
}

// Rows too long for the second cache, against more panels than pass together.
TEST_P(StackedLinear, LongRowsAreWhatEachIsAlone) {
  constexpr int32_t kLongRows = 70;
  for (const DType dtype : {DType::kBF16, DType::kQ4_0}) {
    const LinearSpec spec = {.parts = {{dtype, 300}}, .k = 2112};
    const LinearWeights weights(spec, 11);
    std::mt19937 random(12);
    const std::vector<float> x = RandomRows(kLongRows * spec.k, random);
    LinearRig rig(spec, weights, GetParam().kernels, 1);
    const std::vector<float> all = rig.Run(x.data(), kLongRows);
    for (const int32_t row : {0, 31, 32, kLongRows - 1}) {
      const std::vector<float> alone = rig.Run(x.data() + row * spec.k, 1);
      ASSERT_TRUE(SameBits(alone.data(), all.data() + row * spec.n(), spec.n())) << row;
    }
  }
}

TEST_P(StackedLinear, PackedWeightsAreNoLargerThanTheFile) {
  for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kBF16}) {
    const LinearSpec spec = {.parts = {{dtype, 320}, {dtype, 192}}, .k = 576};
    const LinearWeights weights(spec, 10);
    LinearRig rig(spec, weights, GetParam().kernels, 2);
    EXPECT_EQ(rig.weight_bytes(), spec.n() * RowBytes(dtype, spec.k));
  }
}

// The K types' 4- and 6-bit scales become bytes.
TEST_P(StackedLinear, PackedSubScalesTakeFewBytes) {
  struct Limit {
    DType dtype;
    double most;
  };
  for (const Limit& limit :
       {Limit{DType::kQ5_0, 1.0}, Limit{DType::kQ5_1, 1.0}, Limit{DType::kIQ4_NL, 1.0},
        Limit{DType::kQ6_K, 1.0}, Limit{DType::kQ4_K, 1.03}, Limit{DType::kQ5_K, 1.03},
        Limit{DType::kIQ4_XS, 1.02}, Limit{DType::kQ3_K, 1.04}, Limit{DType::kQ2_K, 1.20}}) {
    const LinearSpec spec = {.parts = {{limit.dtype, 64}}, .k = 768};
    const LinearWeights weights(spec, 10);
    LinearRig rig(spec, weights, GetParam().kernels, 2);
    const double file = static_cast<double>(spec.n() * RowBytes(limit.dtype, spec.k));
    EXPECT_LE(static_cast<double>(rig.weight_bytes()), limit.most * file)
        << Traits(limit.dtype).name;
  }
}

// f32 and f16 products are one chain of fma in ascending K, as the reference's.
TEST_P(StackedLinear, FloatFormsEqualTheReferenceBitForBit) {
  std::mt19937 random(17);
  const BindFn reference = ReferenceKernels()[static_cast<int>(OpId::kLinear)];
  for (const DType compute : {DType::kF32, DType::kF16}) {
    const LinearSpec spec = {.parts = {{DType::kF32, 37}, {DType::kF16, 64}, {DType::kBF16, 9}},
                             .k = 99,
                             .compute = compute,
                             .bias = true,
                             .residual = true,
                             .activation = Activation::kSilu};
    const LinearWeights weights(spec, 5);
    LinearRig rig(spec, weights, GetParam().kernels, 2);
    LinearRig oracle(spec, weights, reference, 2);
    const std::vector<float> x = RandomRows(67 * spec.k, random);
    const std::vector<float> residual = RandomRows(67 * spec.n(), random);
    const std::vector<float> y = rig.Run(x.data(), 67, residual.data());
    const std::vector<float> expected = oracle.Run(x.data(), 67, residual.data());
    ASSERT_TRUE(SameBits(y.data(), expected.data(), 67 * spec.n())) << Traits(compute).name;
  }
}

// --dtype float32 means that quantised weights too are computed as f32.
TEST_P(StackedLinear, QuantisedWeightsAsF32EqualTheReferenceBitForBit) {
  std::mt19937 random(18);
  const LinearSpec spec = {.parts = {{DType::kQ4_0, 33},
                                     {DType::kQ4_1, 31},
                                     {DType::kQ8_0, 40},
                                     {DType::kQ5_1, 3},
                                     {DType::kQ3_K, 33},
                                     {DType::kQ6_K, 5}},
                           .k = 768,
                           .compute = DType::kF32};
  const LinearWeights weights(spec, 6);
  LinearRig rig(spec, weights, GetParam().kernels, 2);
  LinearRig oracle(spec, weights, ReferenceKernels()[static_cast<int>(OpId::kLinear)], 2);
  const std::vector<float> x = RandomRows(9 * spec.k, random);
  ASSERT_EQ(rig.Run(x.data(), 9), oracle.Run(x.data(), 9));
}

std::string VariantName(const testing::TestParamInfo<KernelVariant>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(All, StackedLinear, testing::ValuesIn(KernelVariants()), VariantName);

}  // namespace
}  // namespace spry
