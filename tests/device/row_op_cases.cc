// The cases of RowOpCases: every op whose output row depends on its own input row alone, with the
// same arithmetic in double, written without looking at any kernel.
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "ops/activation.h"
#include "ops/add.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/sampling.h"
#include "tensor/float16.h"
#include "tests/device/op_harness.h"

namespace spry::testing {
namespace {

double Activated(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone: return x;
    case Activation::kRelu: return x < 0 ? 0 : x;
    case Activation::kSilu: return x / (1 + std::exp(-x));
  }
  return x;
}

const char* NameOf(Activation activation) {
  switch (activation) {
    case Activation::kNone: return "plain";
    case Activation::kRelu: return "relu";
    case Activation::kSilu: return "silu";
  }
  return "?";
}

// ---- embed ----

// Block types of 256 elements need rows of whole blocks.
constexpr DType kBlockTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0,   DType::kQ5_0,
                                 DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                                 DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

RowOpCase EmbedCase(DType dtype, bool with_positions) {
  const int64_t width = std::max(64, Traits(dtype).block_elements);
  constexpr int kOffset = 2;
  const TestWeight table = RandomWeight("table", dtype, Shape{kRowOpTableRows, width}, 1.0f, 11);
  const TestWeight positions =
      RandomWeight("positions", DType::kF16, Shape{kRowOpPositions + kOffset, width}, 1.0f, 12);
  return {
      .name = fmt::format("embed {}{}", Traits(dtype).name, with_positions ? " positions" : ""),
      .input_widths = {1},
      .build =
          [=](Tracer& tracer, std::span<const Tensor>) {
            return with_positions
                       ? Embed(tracer, table.handle, positions.handle, {.position_offset = kOffset})
                       : Embed(tracer, table.handle);
          },
      .expect =
          [=](std::span<const double>, InputToken token) {
            std::vector<ExpectedValue> row;
            for (int64_t i = 0; i < width; ++i) {
              const double value = table.values[token.id * width + i];
              const double added =
                  with_positions ? positions.values[(token.position + kOffset) * width + i] : 0.0;
              row.push_back({value + added, std::abs(value) + std::abs(added)});
            }
            return row;
          },
      .max_error = 2.0};
}

RowOpCase EmbedPositionsCase() {
  constexpr int64_t kWidth = 100;
  constexpr int kOffset = 2;
  const TestWeight positions =
      RandomWeight("positions", DType::kBF16, Shape{kRowOpPositions + kOffset, kWidth}, 1.0f, 13);
  return {.name = "embed positions only",
          .input_widths = {1},
          .build =
              [=](Tracer& tracer, std::span<const Tensor>) {
                return EmbedPositions(tracer, positions.handle, {.position_offset = kOffset});
              },
          .expect =
              [=](std::span<const double>, InputToken token) {
                std::vector<ExpectedValue> row;
                for (int64_t i = 0; i < kWidth; ++i) {
                  const double value = positions.values[(token.position + kOffset) * kWidth + i];
                  row.push_back({value, std::abs(value)});
                }
                return row;
              },
          .max_error = 0.0};
}

// ---- norms ----

RowOpCase NormCase(bool layer_norm, int64_t width) {
  constexpr float kEpsilon = 1e-5f;
  const TestWeight weight = RandomWeight("weight", DType::kF32, Shape{width}, 2.0f, 21);
  const TestWeight bias = RandomWeight("bias", DType::kF32, Shape{width}, 1.0f, 22);
  return {.name = fmt::format("{} {}", layer_norm ? "layer_norm" : "rms_norm", width),
          .input_widths = {width},
          .build =
              [=](Tracer& tracer, std::span<const Tensor> inputs) {
                const NormParams params{.epsilon = kEpsilon};
                return layer_norm ? LayerNorm(tracer, inputs[0], weight.handle, bias.handle, params)
                                  : RmsNorm(tracer, inputs[0], weight.handle, params);
              },
          .expect =
              [=](std::span<const double> x, InputToken) {
                double mean = 0, squares = 0;
                for (const double value : x) mean += layer_norm ? value / width : 0;
                for (const double value : x) squares += (value - mean) * (value - mean);
                const double scale = 1 / std::sqrt(squares / width + kEpsilon);
                std::vector<ExpectedValue> row;
                for (int64_t i = 0; i < width; ++i) {
                  const double shift = layer_norm ? bias.values[i] : 0;
                  const double value = (x[i] - mean) * scale * weight.values[i] + shift;
                  // At width 1 a layer norm is 0 / sqrt(epsilon): errors scale with x.
                  const double terms = (std::abs(x[i]) + std::abs(mean)) * scale;
                  row.push_back({value, terms * std::abs(weight.values[i]) + std::abs(shift)});
                }
                return row;
              },
          .max_error = 16.0};
}

// ---- linear ----

struct LinearCase {
  int64_t k = 64;
  std::vector<int64_t> n = {48};  // of the parts
  DType dtype = DType::kF32;
  DType compute = DType::kF32;
  bool bias = false;
  Activation activation = Activation::kNone;
  bool residual = false;
};

double Rounded(DType dtype, double value) {
  const float f = static_cast<float>(value);
  if (dtype == DType::kBF16) return Bf16ToFloat(FloatToBf16(f));
  if (dtype == DType::kF16) return F16ToFloat(FloatToF16(f));
  return value;
}

// The outputs of one linear over x, without residual.
std::vector<ExpectedValue> ExpectLinear(const LinearCase& c, std::span<const TestWeight> weights,
                                        const TestWeight& bias, std::span<const double> x) {
  const DType x_type = c.compute == DType::kBF16 ? DType::kBF16 : DType::kF32;
  const DType w_type = IsQuantized(c.dtype) ? DType::kF32 : c.compute;
  std::vector<ExpectedValue> row;
  for (const TestWeight& weight : weights) {
    for (int64_t n = 0; n < weight.handle.shape[0]; ++n) {
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < c.k; ++k) {
        const double term = Rounded(x_type, x[k]) * Rounded(w_type, weight.values[n * c.k + k]);
        sum += term;
        magnitude += std::abs(term);
      }
      const double shift = c.bias ? bias.values[row.size()] : 0;
      row.push_back({Activated(c.activation, sum + shift), magnitude + std::abs(shift)});
    }
  }
  return row;
}

RowOpCase MakeLinearCase(const LinearCase& c) {
  std::vector<TestWeight> weights;
  std::vector<WeightHandle> handles;
  int64_t n = 0;
  for (const int64_t rows : c.n) {
    weights.push_back(RandomWeight(fmt::format("w{}", n), c.dtype, Shape{rows, c.k}, 1.0f, 31 + n));
    handles.push_back(weights.back().handle);
    n += rows;
  }
  const TestWeight bias = RandomWeight("bias", DType::kF32, Shape{n}, 1.0f, 32);
  RowOpCase result{
      .name = fmt::format("linear {}x{} {} as {} {}{}{}{}", n, c.k, Traits(c.dtype).name,
                          Traits(c.compute).name, NameOf(c.activation),
                          c.n.size() > 1 ? " stacked" : "", c.bias ? " bias" : "",
                          c.residual ? " residual" : ""),
      .compute = c.compute,
      .input_widths = {c.k, n},
  };
  result.build = [=](Tracer& tracer, std::span<const Tensor> inputs) {
    std::vector<WeightHandle> biases;
    if (c.bias) biases.push_back(bias.handle);
    Tensor y = Linear(tracer, inputs[0], handles, biases, {});
    if (c.activation != Activation::kNone) y = Activate(tracer, y, c.activation);
    return c.residual ? Add(tracer, inputs[1], y) : y;
  };
  result.expect = [=](std::span<const double> inputs, InputToken) {
    std::vector<ExpectedValue> row = ExpectLinear(c, weights, bias, inputs.first(c.k));
    for (int64_t i = 0; i < n && c.residual; ++i) {
      row[i].value += inputs[c.k + i];
      row[i].magnitude += std::abs(inputs[c.k + i]);
    }
    return row;
  };
  result.max_error = 8.0 + 2.0 * std::sqrt(static_cast<double>(c.k));
  result.quantized = IsQuantized(c.dtype);
  return result;
}

std::vector<LinearCase> LinearCases() {
  constexpr DType kPlain[] = {DType::kF32, DType::kF16, DType::kBF16};
  std::vector<LinearCase> cases;
  for (const DType dtype : kPlain) {
    for (const DType compute : kPlain) cases.push_back({.dtype = dtype, .compute = compute});
  }
  for (const DType dtype : kBlockTypes) {
    const int64_t block = Traits(dtype).block_elements;
    const int64_t k = std::max<int64_t>(64, block);
    cases.push_back({.k = k, .dtype = dtype});
    cases.push_back({.k = k, .dtype = dtype, .compute = DType::kBF16, .bias = true});
    cases.push_back({.k = 2048 + 9 * block, .n = {7}, .dtype = dtype});  // beyond a chunk of K
  }
  for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kSilu}) {
    for (const bool bias : {false, true}) {
      for (const bool residual : {false, true}) {
        cases.push_back({.bias = bias, .activation = activation, .residual = residual});
      }
    }
  }
  cases.push_back({.k = 1, .n = {1}});
  cases.push_back({.k = 37, .n = {1}});
  cases.push_back({.k = 96, .n = {33, 16, 5}, .dtype = DType::kBF16, .bias = true});
  cases.push_back({.k = 4099, .n = {19}, .dtype = DType::kF16});
  return cases;
}

// ---- rope ----

RowOpCase RopeCase(int rotary_dim, bool interleaved) {
  constexpr int kHeads = 3, kKvHeads = 1, kDim = 16;
  std::vector<double> frequencies;
  for (int i = 0; i < rotary_dim / 2; ++i) {
    frequencies.push_back(std::pow(10000.0, -2.0 * i / rotary_dim));
  }
  const RopeParams params{.num_heads = kHeads,
                          .num_kv_heads = kKvHeads,
                          .head_dim = kDim,
                          .rotary_dim = rotary_dim,
                          .interleaved = interleaved};
  return {.name = fmt::format("rope {} of {}{}", rotary_dim, kDim, interleaved ? " pairs" : ""),
          .input_widths = {(kHeads + kKvHeads) * kDim},
          .build =
              [=](Tracer& tracer, std::span<const Tensor> inputs) {
                Rope(tracer, inputs[0].Columns(0, kHeads * kDim),
                     inputs[0].Columns(kHeads * kDim, kKvHeads * kDim),
                     AddRopeTable(tracer, frequencies), params);
                return inputs[0];
              },
          .expect =
              [=](std::span<const double> x, InputToken token) {
                std::vector<ExpectedValue> row;
                for (const double value : x) row.push_back({value, std::abs(value)});
                for (int head = 0; head < kHeads + kKvHeads; ++head) {
                  for (int i = 0; i < rotary_dim / 2; ++i) {
                    const int a = head * kDim + (interleaved ? 2 * i : i);
                    const int b = interleaved ? a + 1 : a + rotary_dim / 2;
                    const double c = std::cos(token.position * frequencies[i]);
                    const double s = std::sin(token.position * frequencies[i]);
                    const double size = std::abs(x[a]) + std::abs(x[b]);
                    row[a] = {x[a] * c - x[b] * s, size};
                    row[b] = {x[b] * c + x[a] * s, size};
                  }
                }
                return row;
              },
          .max_error = 4.0};
}

// ---- the small ones ----

RowOpCase ActivationCase(Activation activation, bool gated) {
  constexpr int64_t kWidth = 40;
  return {.name = fmt::format("{}activation {}", gated ? "gated " : "", NameOf(activation)),
          .input_widths = {gated ? 2 * kWidth : kWidth},
          .build =
              [=](Tracer& tracer, std::span<const Tensor> inputs) {
                return gated ? GatedActivate(tracer, inputs[0], activation)
                             : Activate(tracer, inputs[0], activation);
              },
          .expect =
              [=](std::span<const double> x, InputToken) {
                std::vector<ExpectedValue> row;
                for (int64_t i = 0; i < kWidth; ++i) {
                  const double up = gated ? x[kWidth + i] : 1.0;
                  const double value = Activated(activation, x[i]) * up;
                  row.push_back({value, std::abs(value)});
                }
                return row;
              }};
}

RowOpCase AddCase() {
  constexpr int64_t kWidth = 33;
  return {.name = "add",
          .input_widths = {kWidth, kWidth},
          .build = [](Tracer& tracer,
                      std::span<const Tensor> inputs) { return Add(tracer, inputs[0], inputs[1]); },
          .expect =
              [](std::span<const double> x, InputToken) {
                std::vector<ExpectedValue> row;
                for (int64_t i = 0; i < kWidth; ++i) {
                  row.push_back({x[i] + x[kWidth + i], std::abs(x[i]) + std::abs(x[kWidth + i])});
                }
                return row;
              },
          .max_error = 1.0};
}

RowOpCase GatherCase() {
  constexpr int64_t kWidth = 33;
  return {.name = "gather_samples",
          .input_widths = {kWidth},
          .build = [](Tracer& tracer,
                      std::span<const Tensor> inputs) { return GatherSamples(tracer, inputs[0]); },
          .expect =
              [](std::span<const double> x, InputToken) {
                std::vector<ExpectedValue> row;
                for (const double value : x) row.push_back({value, std::abs(value)});
                return row;
              },
          .max_error = 0.0};
}

}  // namespace

std::vector<RowOpCase> RowOpCases() {
  std::vector<RowOpCase> cases;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    cases.push_back(EmbedCase(dtype, /*with_positions=*/false));
  }
  for (const DType dtype : kBlockTypes) {
    cases.push_back(EmbedCase(dtype, /*with_positions=*/false));
  }
  cases.push_back(EmbedCase(DType::kF32, /*with_positions=*/true));
  cases.push_back(EmbedPositionsCase());
  for (const int64_t width : {1, 15, 16, 17, 64, 100, 576}) {
    cases.push_back(NormCase(/*layer_norm=*/true, width));
    cases.push_back(NormCase(/*layer_norm=*/false, width));
  }
  for (const LinearCase& linear : LinearCases()) cases.push_back(MakeLinearCase(linear));
  for (const int rotary_dim : {4, 16}) {
    cases.push_back(RopeCase(rotary_dim, /*interleaved=*/false));
    cases.push_back(RopeCase(rotary_dim, /*interleaved=*/true));
  }
  for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kSilu}) {
    cases.push_back(ActivationCase(activation, /*gated=*/false));
    cases.push_back(ActivationCase(activation, /*gated=*/true));
  }
  cases.push_back(AddCase());
  cases.push_back(GatherCase());
  return cases;
}

}  // namespace spry::testing
