// What the kernels of an instruction set do with values that no model should have: they stay where
// they are, and a NaN stays a NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "device/cpu/machine.h"
#include "device/cpu/simd/attention_kernels.h"
#include "device/cpu/simd/row_kernels.h"
#include "ops/attention/attention.h"
#include "ops/math.h"
#include "tests/device/op_harness.h"

namespace spry::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<const RowKernels*> AllRowKernels() {
  const CpuFeatures features = DetectCpuFeatures();
  std::vector<const RowKernels*> all;
  if (features.avx2) all.push_back(&Avx2RowKernels());
  if (features.avx512) all.push_back(&Avx512RowKernels());
  return all;
}

std::vector<const AttentionKernels*> AllAttentionKernels() {
  const CpuFeatures features = DetectCpuFeatures();
  std::vector<const AttentionKernels*> all;
  if (features.avx2) all.push_back(&Avx2AttentionKernels());
  if (features.avx512) all.push_back(&Avx512AttentionKernels());
  if (features.amx) all.push_back(&AmxAttentionKernels());
  return all;
}

std::vector<KvKind> KvKindsOf(const AttentionKernels& kernels) {
  if (&kernels == &AmxAttentionKernels()) return {KvKind::kBF16};
  return {KvKind::kF32, KvKind::kBF16, KvKind::kF16};
}

TEST(SimdKernels, SiluIsTheScalarOneEverywhere) {
  std::vector<float> x = {0.0f,   -0.0f, 1e-45f, -1e-45f, 87.0f, -87.0f, 87.5f, -87.5f, 88.0f,
                          -88.0f, 1e30f, -1e30f, kInf,    -kInf, kNan,   -kNan, 1e-30f, 5.5f};
  Random random(1);
  while (x.size() < 40000) x.push_back(random.Between(-100.0f, 100.0f));
  for (const RowKernels* kernels : AllRowKernels()) {
    std::vector<float> y(x.size());
    const auto silu = kernels->activate[static_cast<int>(Activation::kSilu)];
    silu(x.data(), nullptr, static_cast<int64_t>(x.size()), y.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const float expected = Silu(x[i]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(y[i])) << x[i];
      } else {
        EXPECT_EQ(BitsFromFloat(y[i]), BitsFromFloat(expected)) << x[i];
      }
    }
  }
}

TEST(SimdKernels, NormsAndReluKeepANan) {
  constexpr int kWidth = 37;
  for (const RowKernels* kernels : AllRowKernels()) {
    for (const int at : {0, 15, 36}) {
      std::vector<float> x(kWidth, 1.0f), ones(kWidth, 1.0f), y(kWidth);
      x[at] = kNan;
      const NormRow row = {.x = x.data(),
                           .y = y.data(),
                           .width = kWidth,
                           .weight = ones.data(),
                           .bias = ones.data(),
                           .epsilon = 1e-5f};
      for (const auto norm : {kernels->layer_norm, kernels->rms_norm}) {
        norm(row);
        for (const float value : y) EXPECT_TRUE(std::isnan(value));
      }
      kernels->activate[static_cast<int>(Activation::kRelu)](x.data(), nullptr, kWidth, y.data());
      EXPECT_TRUE(std::isnan(y[at]));
      EXPECT_EQ(y[(at + 1) % kWidth], 1.0f);
    }
  }
}

// A cache of one kv head and a few lines that look at it.
class AttentionRig {
 public:
  static constexpr int kDim = 96, kKeys = 64;

  AttentionRig(const AttentionKernels& kernels, KvKind kind)
      : kernels_(kernels), kind_(static_cast<int>(kind)), bytes_(kind == KvKind::kF32 ? 4 : 2) {
    keys_.resize(kKeys * kDim * bytes_);
    values_.resize(kKeys * kDim * bytes_);
  }

  void Write(int key, const std::vector<float>& k, const std::vector<float>& v) {
    const int lane = key % kernels_.lanes;
    kernels_.write_key[kind_](k.data(), kDim, lane, keys_.data() + (key - lane) * kDim * bytes_);
    kernels_.write_value[kind_](v.data(), kDim, lane,
                                values_.data() + (key - lane) * kDim * bytes_);
  }

  std::vector<float> Attend(const std::vector<float>& queries, const std::vector<int>& counts) {
    const int lines = static_cast<int>(counts.size());
    std::vector<const std::byte*> keys, values;
    for (int key = 0; key < kKeys; key += kernels_.lanes) {
      keys.push_back(keys_.data() + key * kDim * bytes_);
      values.push_back(values_.data() + key * kDim * bytes_);
    }
    std::vector<float> scores(lines * kKvSegment), output(lines * kDim);
    AttentionBlock block = {.lines = lines,
                            .head_dim = kDim,
                            .v_head_dim = kDim,
                            .scale = 0.2f,
                            .first_segment = true,
                            .keys = keys.data(),
                            .values = values.data(),
                            .scores = scores.data(),
                            .output = output.data(),
                            .output_stride = kDim};
    for (int l = 0; l < lines; ++l) {
      block.queries[l] = queries.data() + l * kDim;
      block.counts[l] = counts[l];
    }
    if (kernels_.enter != nullptr) kernels_.enter(lines);
    kernels_.attend[kind_][lines - 1](block);
    if (kernels_.leave != nullptr) kernels_.leave();
    for (int l = 0; l < lines; ++l) {
      kernels_.finish(block.states[l], output.data() + l * kDim, kDim, output.data() + l * kDim);
    }
    return output;
  }

 private:
  const AttentionKernels& kernels_;
  int kind_;
  int bytes_;
  std::vector<std::byte> keys_, values_;
};

std::vector<float> SomeFloats(int count, Random& random) {
  std::vector<float> values(count);
  for (float& value : values) value = random.Between(-1.5f, 1.5f);
  return values;
}

// A block's unused slots hold what an earlier request left there, be it NaNs and infinities.
TEST(SimdKernels, KeysBehindALinesLastDoNotReachIt) {
  constexpr int kDim = AttentionRig::kDim;
  for (const AttentionKernels* kernels : AllAttentionKernels()) {
    for (const KvKind kind : KvKindsOf(*kernels)) {
      Random random(2);
      AttentionRig clean(*kernels, kind), dirty(*kernels, kind);
      for (int key = 0; key < 40; ++key) {
        const std::vector<float> k = SomeFloats(kDim, random), v = SomeFloats(kDim, random);
        clean.Write(key, k, v);
        dirty.Write(key, k, v);
      }
      for (int lines = 1; lines <= kernels->max_lines; ++lines) {
        const std::vector<float> queries = SomeFloats(lines * kDim, random);
        for (const int first : {1, 7, 16, 17, 33}) {
          std::vector<int> counts;
          for (int l = 0; l < lines; ++l) counts.push_back(first + l);
          const std::vector<float> expected = clean.Attend(queries, counts);
          AttentionRig poisoned = dirty;
          for (int key = first + lines - 1; key < AttentionRig::kKeys; ++key) {
            poisoned.Write(key, std::vector<float>(kDim, key % 2 == 0 ? kNan : kInf),
                           std::vector<float>(kDim, key % 2 == 0 ? kInf : kNan));
          }
          EXPECT_EQ(poisoned.Attend(queries, counts), expected) << lines << " from " << first;
          // Keys that only the last line sees.
          if (lines == 1) continue;
          poisoned.Write(first + lines - 2, std::vector<float>(kDim, kNan),
                         std::vector<float>(kDim, kInf));
          std::vector<float> output = poisoned.Attend(queries, counts);
          for (int d = 0; d < kDim; ++d) EXPECT_TRUE(std::isnan(output[(lines - 1) * kDim + d]));
          output.resize((lines - 1) * kDim);
          EXPECT_TRUE(std::equal(output.begin(), output.end(), expected.begin()));
        }
      }
    }
  }
}

TEST(SimdKernels, ANanInAQueryIsSeen) {
  constexpr int kDim = AttentionRig::kDim;
  for (const AttentionKernels* kernels : AllAttentionKernels()) {
    Random random(3);
    AttentionRig rig(*kernels, KvKind::kBF16);
    for (int key = 0; key < 40; ++key) {
      rig.Write(key, SomeFloats(kDim, random), SomeFloats(kDim, random));
    }
    std::vector<float> queries = SomeFloats(2 * kDim, random);
    queries[kDim + 5] = kNan;
    const std::vector<float> output = rig.Attend(queries, {20, 21});
    for (int d = 0; d < kDim; ++d) {
      EXPECT_FALSE(std::isnan(output[d]));
      EXPECT_TRUE(std::isnan(output[kDim + d]));
    }
  }
}

}  // namespace
}  // namespace spry::testing
