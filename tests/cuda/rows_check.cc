// The row-function rule where kernels differ by the number of rows: 16-bit linears and attention.
// Outputs are 16-bit and read through a linear with the identity, which copies them exactly.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "ops/activation.h"
#include "ops/add.h"
#include "ops/embed.h"
#include "ops/fusion.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/random.h"
#include "ops/sampling.h"
#include "tensor/float16.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"
#include "tests/device/attention_harness.h"

namespace spry::testing {
namespace {

constexpr Fusions kAll = {
    .norm_into_linear = true, .write_kv_into_attention = true, .rope_into_attention = true};

struct LinearRowsCase {
  int64_t n = 0;
  int64_t k = 0;
  DType dtype = DType::kF16;
  NormKind norm = NormKind::kNone;
  Activation activation = Activation::kNone;
  bool residual = false;
  bool gated = false;  // x is a gated activation of 2 k columns
  int max_rows = kRowOpTokens;
  int64_t taker_n = 0;  // outputs of one more linear, which alone takes what this one makes

  int64_t x_columns() const { return gated ? 2 * k : k; }
};

double Rounded(DType dtype, double value) {
  const auto f = static_cast<float>(value);
  return dtype == DType::kF16 ? F16ToFloat(FloatToF16(f)) : Bf16ToFloat(FloatToBf16(f));
}
double Step(DType dtype) { return dtype == DType::kF16 ? 0x1p-10 : 0x1p-7; }

class LinearRows {
 public:
  LinearRows(const LinearRowsCase& c, const Target& target)
      : case_(c),
        table_(RandomWeight("x", c.dtype, Shape{kRowOpTableRows, c.x_columns() + c.n}, 1.5f, 71)),
        weight_(RandomWeight("w", c.dtype, Shape{c.n, c.k}, 0.1f, 72)),
        bias_(RandomWeight("bias", DType::kF32, Shape{c.n}, 1.0f, 73)),
        scale_(RandomWeight("scale", DType::kF32, Shape{c.k}, 1.0f, 74)),
        shift_(RandomWeight("shift", DType::kF32, Shape{c.k}, 1.0f, 75)),
        taker_(
            RandomWeight("taker", c.dtype, Shape{std::max<int64_t>(c.taker_n, 1), c.n}, 0.1f, 76)),
        identity_(IdentityWeight(outputs())) {
    Tracer tracer("rows", {.compute = c.dtype,
                           .activation = target.ActivationDType(c.dtype),
                           .max_length = kRowOpPositions});
    const Tensor inputs = Embed(tracer, table_.handle);
    Tensor x = inputs.Columns(0, c.x_columns());
    if (c.gated) x = GatedActivate(tracer, x, Activation::kSilu);
    if (c.norm == NormKind::kLayer) x = LayerNorm(tracer, x, scale_.handle, shift_.handle, {1e-5f});
    if (c.norm == NormKind::kRms) x = RmsNorm(tracer, x, scale_.handle, {1e-5f});
    Tensor y = Linear(tracer, x, {&weight_.handle, 1}, {&bias_.handle, 1}, {});
    if (c.activation != Activation::kNone) y = Activate(tracer, y, c.activation);
    if (c.residual) y = Add(tracer, inputs.Columns(c.x_columns(), c.n), y);
    if (c.taker_n > 0) y = Linear(tracer, y, {&taker_.handle, 1}, {}, {});
    tracer.SetLogits(Linear(tracer, y, {&identity_.handle, 1}, {}, {.logits = true}));
    tracer.Emit({.id = OpId::kAdvance});
    program_ = std::make_unique<Program>(*tracer.Finish(kRowOpTableRows));
    FuseOps(*program_, kAll);
    executable_ = target.Compile(*program_, {.max_tokens = c.max_rows,
                                             .max_rows = c.max_rows,
                                             .max_samples = c.max_rows,
                                             .max_blocks_per_row = 1,
                                             .num_blocks = 1});
  }

  int64_t outputs() const { return case_.taker_n > 0 ? case_.taker_n : case_.n; }

  // Row i has token (first + i) mod kRowOpTableRows.
  std::vector<float> Run(int first, int count) {
    executable_->RunStep([&](StepWriter& step) {
      for (int row = 0; row < count; ++row) {
        const int32_t id = static_cast<int32_t>((first + row) % kRowOpTableRows);
        step.Join(row, {});
        step.Prefill(row, {&id, 1}, 0, /*sample=*/true);
      }
    });
    return executable_->Read(program_->logits, count);
  }

  // How far a row is from the product in double, in units of what roundings allow. Of one linear.
  double WorstError(int id, std::span<const float> found) const {
    const double step = Step(case_.dtype);
    const double* inputs = table_.values.data() + id * (case_.x_columns() + case_.n);
    const std::vector<double> x = Normed(inputs);
    double worst = 0.0;
    for (int64_t n = 0; n < case_.n; ++n) {
      double sum = bias_.values[n];
      double squares = 0.0;
      for (int64_t k = 0; k < case_.k; ++k) {
        const double term = x[k] * weight_.values[n * case_.k + k];
        sum += term;
        squares += term * term;
      }
      if (case_.activation == Activation::kRelu) sum = std::max(sum, 0.0);
      if (case_.activation == Activation::kSilu) sum = sum / (1.0 + std::exp(-sum));
      if (case_.residual) sum += inputs[case_.x_columns() + n];
      // The result's own rounding, and the terms' where x is rounded after its norm.
      const double allowed = step * (std::abs(sum) + std::sqrt(squares) + 0x1p-6);
      worst = std::max(worst, std::abs(found[n] - sum) / allowed);
    }
    return worst;
  }

 private:
  std::vector<double> Normed(const double* inputs) const {
    std::vector<double> x(inputs, inputs + case_.k);
    for (int64_t k = 0; case_.gated && k < case_.k; ++k) {
      const double silu = inputs[k] / (1.0 + std::exp(-inputs[k]));
      x[k] = Rounded(case_.dtype, silu * inputs[case_.k + k]);
    }
    if (case_.norm == NormKind::kNone) return x;
    double mean = 0.0;
    double squares = 0.0;
    for (const double value : x) mean += value / static_cast<double>(case_.k);
    if (case_.norm == NormKind::kRms) mean = 0.0;
    for (const double value : x) squares += (value - mean) * (value - mean);
    const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(case_.k) + 1e-5);
    for (int64_t k = 0; k < case_.k; ++k) {
      const double shift = case_.norm == NormKind::kLayer ? shift_.values[k] : 0.0;
      x[k] = Rounded(case_.dtype, (x[k] - mean) * inverse * scale_.values[k] + shift);
    }
    return x;
  }

  LinearRowsCase case_;
  TestWeight table_, weight_, bias_, scale_, shift_, taker_, identity_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<TestExecutable> executable_;
};

void CheckLinear(Report& report, const LinearRowsCase& c, const Target& target) {
  LinearRows rows(c, target);
  std::vector<std::vector<float>> alone(kRowOpTableRows);
  double worst = 0.0;
  for (int id = 0; id < kRowOpTableRows; ++id) {
    alone[id] = rows.Run(id, 1);
    if (id % 16 == 0 && c.taker_n == 0) worst = std::max(worst, rows.WorstError(id, alone[id]));
  }
  std::vector<int> counts = {64, 65, 129, 130, 257, 512};
  for (const int count : {513, 700, 1025, c.max_rows}) {
    if (count <= c.max_rows && count > counts.back()) counts.push_back(count);
  }
  for (int count = 2; count <= 40; ++count) counts.push_back(count);
  int differing = 0;
  int compared = 0;
  for (const int count : counts) {
    const std::vector<float> found = rows.Run(/*first=*/count, count);
    for (int row = 0; row < count; ++row, ++compared) {
      const std::vector<float>& expected = alone[(count + row) % kRowOpTableRows];
      differing += std::memcmp(expected.data(), found.data() + row * rows.outputs(),
                               rows.outputs() * sizeof(float)) != 0;
    }
  }
  const std::string name = fmt::format(
      "rows, linear {}x{} {}{}{}{}{}{}", c.n, c.k, Traits(c.dtype).name, c.gated ? " gated" : "",
      c.norm == NormKind::kNone ? "" : " norm", c.activation == Activation::kNone ? "" : " act",
      c.residual ? " residual" : "", c.taker_n == 0 ? "" : fmt::format(" and {} of it", c.taker_n));
  report.Expect(differing == 0 && worst < 1.0, name,
                fmt::format("{} of {} rows differ from the row alone; worst error {:.2f} of bound",
                            differing, compared, worst));
}

enum class LogitBias { kNone, kWide, kBroken };

// Logits that are drawn where they are made (draw.cuh): the draw is that of the row's logits by the
// formula, and equal alone and in a batch. A wide bias makes ids as likely as the products do; of a
// broken one an id is NaN, which no row may overlook.
void CheckDrawnLogits(Report& report, int64_t n, int64_t k, LogitBias bias, DType dtype,
                      const Target& target) {
  const TestWeight table = RandomWeight("x", dtype, Shape{kRowOpTableRows, k}, 1.5f, 81);
  const TestWeight weight = RandomWeight("w", dtype, Shape{n, k}, 0.05f, 82);
  std::vector<float> added;
  Random random(/*seed=*/83);
  for (int64_t id = 0; id < n; ++id) added.push_back(random.Between(-2.0f, 2.0f));
  if (bias == LogitBias::kBroken) added[n / 2 + 3] = NAN;
  const TestWeight biases = FloatWeight("bias", Shape{n}, std::move(added));
  Tracer tracer("drawn", {.compute = dtype,
                          .activation = target.ActivationDType(dtype),
                          .max_length = kRowOpPositions});
  const Tensor x = GatherSamples(tracer, Embed(tracer, table.handle));
  SampleAndAdvance(tracer, Linear(tracer, x, {&weight.handle, 1},
                                  std::span(&biases.handle, bias == LogitBias::kNone ? 0 : 1),
                                  {.logits = true}));
  Program program = *tracer.Finish(n);
  FuseOps(program, kAll);
  const StepLimits limits{.max_tokens = kRowOpTokens,
                          .max_rows = kRowOpTokens,
                          .max_samples = kRowOpTokens,
                          .max_blocks_per_row = 1,
                          .num_blocks = 1};
  const auto executable = target.Compile(program, limits);
  int wrong = 0;
  int drawn = 0;
  for (const int count : {1, 7, 16, 31, 64, 130, 257}) {
    const auto params_of = [](int row) {
      return RowParams{.temperature = row % 3 == 0 ? 0.0f : 0.9f,
                       .seed = static_cast<uint64_t>(row) + 5,
                       .max_outputs = 2};
    };
    const StepResult& result = executable->RunStep([&](StepWriter& step) {
      for (int row = 0; row < count; ++row) {
        const int32_t id = static_cast<int32_t>(row % kRowOpTableRows);
        step.Join(row, params_of(row));
        step.Prefill(row, {&id, 1}, 0, /*sample=*/true);
      }
    });
    const std::vector<SampledResult> sampled = SampledResults(result, count);
    const std::vector<float> logits = executable->Read(program.logits, count);
    for (int row = 0; row < count; ++row, ++drawn) {
      if (bias == LogitBias::kBroken) {
        wrong += sampled[row].fault != RowFault::kNan;
        continue;
      }
      const RowParams params = params_of(row);
      const DrawKey key = MakeDrawKey(params.seed, /*output_index=*/0);
      int32_t best = 0;
      float best_score = -INFINITY;
      for (int32_t id = 0; id < n; ++id) {
        const float logit = logits[row * n + id];
        const float score =
            params.temperature == 0.0f ? logit : DrawScore(key, id, logit, params.temperature);
        if (score > best_score) best = id, best_score = score;
      }
      wrong += sampled[row].count != 1 || sampled[row].tokens[0] != TokenId(best);
    }
  }
  const char* const with[] = {"", " bias", " broken bias"};
  report.Expect(wrong == 0,
                fmt::format("rows, drawn logits {}x{} {}{}", n, k, Traits(dtype).name,
                            with[static_cast<int>(bias)]),
                fmt::format("{} of {} draws are not those of the logits", wrong, drawn));
}

void CheckAttentionRows(Report& report, int head_dim, int group, DType dtype, int block_size,
                        const std::string& backend, int kv_heads = 2) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget target(*std::move(device), backend);
  constexpr int kLength = 700;  // beyond a segment
  AttentionCase c = GroupedCase(kv_heads, group, head_dim, dtype);
  c.block_size = block_size;
  c.fusions = kAll;
  AttentionRunner runner(c, target, /*seed=*/9);
  const std::vector<int32_t> ids = SomeIds(kLength, /*seed=*/3);
  const int64_t width = runner.output_width();
  const auto in_pieces_of = [&](int row, int size, int others) {
    std::vector<float> all;
    runner.Start(row, ids);
    for (int other = 0; other < others; ++other) runner.Start(row + 1 + other, ids);
    for (int done = 0; done < kLength; done += size) {
      const int count = std::min(size, kLength - done);
      std::vector<Piece> pieces = {{row, count}};
      for (int other = 0; other < others; ++other) pieces.push_back({row + 1 + other, count});
      const std::vector<float> found = runner.Step(pieces);
      all.insert(all.end(), found.begin(), found.begin() + count * width);
    }
    return all;
  };
  const std::vector<float> whole = in_pieces_of(0, kLength, 0);
  const std::vector<float> one = in_pieces_of(1, 1, 0);
  const std::vector<float> batch = in_pieces_of(0, 1, 5);
  const std::vector<float> chunks = in_pieces_of(2, 37, 1);
  double worst = 0.0;
  for (const int position : {0, 15, 100, 511, 512, kLength - 1}) {
    const std::vector<double> expected = runner.Expected(ids, position);
    for (int64_t i = 0; i < width; ++i) {
      worst = std::max(worst, std::abs(expected[i] - whole[position * width + i]));
    }
  }
  const auto equal = [&](const std::vector<float>& other) {
    return CompareBits(whole, other).equal;
  };
  report.Expect(equal(one) && equal(batch) && equal(chunks) && worst < 2.0 * Step(dtype),
                fmt::format("rows, attention {} head {} group {} {} blocks of {}", backend,
                            head_dim, group, Traits(dtype).name, block_size),
                fmt::format("by one {}, batch {}, by 37 {}; worst error {:.2g}",
                            equal(one) ? "equal" : "differs", equal(batch) ? "equal" : "differs",
                            equal(chunks) ? "equal" : "differs", worst));
}

// Decode steps of so many rows that a unit has fewer warps: each row as when it is alone.
void CheckCrowdedAttention(Report& report, int head_dim, int group, int kv_heads,
                           const std::string& backend) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget target(*std::move(device), backend);
  constexpr int kRows = 140;
  constexpr int kPrompt = 505;  // decode steps go on beyond a segment
  constexpr int kLength = 520;
  AttentionCase c = GroupedCase(kv_heads, group, head_dim, DType::kF16);
  c.fusions = kAll;
  c.max_rows = kRows;
  AttentionRunner runner(c, target, /*seed=*/9);
  const std::vector<int32_t> ids = SomeIds(kLength, /*seed=*/3);
  const int64_t width = runner.output_width();
  std::vector<float> alone;
  runner.Start(0, ids);
  for (int i = 0; i < kLength; ++i) {
    const std::vector<float> found = runner.Step(std::vector<Piece>{{0, 1}});
    alone.insert(alone.end(), found.begin(), found.end());
  }
  std::vector<int> done(kRows, kPrompt);
  for (int row = 0; row < kRows; ++row) {
    runner.Start(row, ids);
    (void)runner.Step(std::vector<Piece>{{row, kPrompt}});
  }
  int differing = 0;
  int compared = 0;
  for (const int count : {140, 110, 80, 50, 30, 140, 110, 80, 50, 30, 140, 110, 80, 50, 140}) {
    std::vector<Piece> pieces;
    for (int row = 0; row < count; ++row) pieces.push_back({kRows - 1 - row, 1});
    const std::vector<float> found = runner.Step(pieces);
    for (int row = 0; row < count; ++row, ++compared) {
      const float* expected = &alone[done[kRows - 1 - row]++ * width];
      differing += std::memcmp(expected, &found[row * width], width * sizeof(float)) != 0;
    }
  }
  report.Expect(differing == 0,
                fmt::format("rows, attention {} head {} group {}, {} KV heads, up to {} rows",
                            backend, head_dim, group, kv_heads, kRows),
                fmt::format("{} of {} differ from the row alone", differing, compared));
}

// Attention with rope folded in beside rope and attention apart: a prompt, then decode steps of
// more and more rows.
void CheckFoldedRope(Report& report, int head_dim, int group, const RopeParams& rope,
                     const std::string& backend) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget target(*std::move(device), backend);
  constexpr int kRows = 40;
  constexpr int kPrompt = 505;  // decode steps go on beyond a segment
  AttentionCase c = GroupedCase(/*num_kv_heads=*/2, group, head_dim, DType::kBF16);
  c.rotary_dim = rope.rotary_dim;
  c.rope_interleaved = rope.interleaved;
  c.max_rows = kRows;
  c.fusions = kAll;
  AttentionRunner folded(c, target, /*seed=*/9);
  c.fusions.rope_into_attention = false;
  AttentionRunner apart(c, target, /*seed=*/9);
  const std::vector<int32_t> ids = SomeIds(kPrompt + 16, /*seed=*/3);
  bool equal = true;
  const auto step = [&](const std::vector<Piece>& pieces) {
    equal &= CompareBits(folded.Step(pieces), apart.Step(pieces)).equal;
  };
  for (int row = 0; row < kRows; ++row) {
    folded.Start(row, ids);
    apart.Start(row, ids);
    step({{row, kPrompt - row}});
  }
  for (const int count : {1, 2, 8, 9, 20, 40, 40, 1, 40}) {
    std::vector<Piece> pieces;
    for (int row = 0; row < count; ++row) pieces.push_back({kRows - 1 - row, 1});
    step(pieces);
  }
  report.Expect(
      equal,
      fmt::format("rows, folded rope {} head {} group {}, {} rotated{}", backend, head_dim, group,
                  rope.rotary_dim, rope.interleaved ? ", interleaved" : ""),
      "bits differ from those of rope and attention apart");
}

void CheckLinears(Report& report, DType dtype, const Target& target) {
  const LinearRowsCase cases[] = {
      {.n = 768, .k = 768, .dtype = dtype, .residual = true, .max_rows = 1025},
      {.n = 768, .k = 768, .dtype = dtype, .norm = NormKind::kLayer},
      // As many rows as prompts have.
      {.n = 768, .k = 3072, .dtype = dtype, .residual = true, .max_rows = 2300},
      {.n = 3072,
       .k = 768,
       .dtype = dtype,
       .norm = NormKind::kLayer,
       .activation = Activation::kRelu,
       .max_rows = 1025,
       .taker_n = 768},
      {.n = 3072,
       .k = 768,
       .dtype = dtype,
       .norm = NormKind::kLayer,
       .activation = Activation::kRelu},
      {.n = 576,
       .k = 1536,
       .dtype = dtype,
       .norm = NormKind::kRms,
       .activation = Activation::kSilu,
       .residual = true},
      {.n = 576, .k = 576, .dtype = dtype, .norm = NormKind::kRms, .max_rows = 1025},
      {.n = 128, .k = 4096, .dtype = dtype, .norm = NormKind::kRms},
      {.n = 64, .k = 14336, .dtype = dtype, .residual = true, .max_rows = 700},
      // Large enough to be streamed.
      {.n = 2320, .k = 4096, .dtype = dtype, .norm = NormKind::kRms},
      {.n = 2336, .k = 4096, .dtype = dtype, .norm = NormKind::kRms, .max_rows = 700},
      {.n = 640,
       .k = 14336,
       .dtype = dtype,
       .activation = Activation::kSilu,
       .residual = true,
       .max_rows = 1025},
      // From rows that the activation has packed.
      {.n = 4096, .k = 2048, .dtype = dtype, .residual = true, .gated = true, .max_rows = 700}};
  for (const LinearRowsCase& c : cases) CheckLinear(report, c, target);
}

}  // namespace

void CheckRows(Report& report, const CheckOptions&) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget cuda(*std::move(device));
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    CheckLinears(report, dtype, cuda);
    CheckDrawnLogits(report, /*n=*/3072, /*k=*/768, LogitBias::kNone, dtype, cuda);
    CheckDrawnLogits(report, /*n=*/20000, /*k=*/768, LogitBias::kBroken, dtype, cuda);
    CheckDrawnLogits(report, /*n=*/2320, /*k=*/576, LogitBias::kWide, dtype, cuda);
    CheckDrawnLogits(report, /*n=*/2320, /*k=*/1536, LogitBias::kWide, dtype, cuda);
    CheckDrawnLogits(report, /*n=*/2320, /*k=*/2304, LogitBias::kWide, dtype, cuda);
    CheckDrawnLogits(report, /*n=*/2320, /*k=*/4096, LogitBias::kNone, dtype, cuda);
    for (const int block_size : {8, 16}) {
      CheckAttentionRows(report, 64, /*group=*/1, dtype, block_size, "cuda-lanes");
    }
    for (const int group : {1, 3, 4, 8}) {
      const int block_size = group == 4 ? 8 : 16;
      CheckAttentionRows(report, 64, group, dtype, block_size, "cuda");
      CheckAttentionRows(report, 128, group, dtype, block_size, "cuda");
    }
  }
  // Outputs that are handed on packed, in decode steps alone.
  CheckAttentionRows(report, 128, /*group=*/4, DType::kBF16, 16, "cuda", /*kv_heads=*/8);
  CheckCrowdedAttention(report, 128, /*group=*/4, /*kv_heads=*/8, "cuda");
  for (const RopeParams& rope : {RopeParams{.rotary_dim = 128}, RopeParams{.rotary_dim = 64},
                                 RopeParams{.rotary_dim = 128, .interleaved = true}}) {
    CheckFoldedRope(report, 128, /*group=*/4, rope, "cuda");
  }
  CheckFoldedRope(report, 64, /*group=*/1, {.rotary_dim = 64}, "cuda");
  CheckFoldedRope(report, 64, /*group=*/3, {.rotary_dim = 64}, "cuda");
  CheckFoldedRope(report, 64, /*group=*/1, {.rotary_dim = 64}, "cuda-lanes");
  CheckFoldedRope(report, 64, /*group=*/4, {.rotary_dim = 64}, "cuda-reference");
  CheckCrowdedAttention(report, 64, /*group=*/1, /*kv_heads=*/10, "cuda-lanes");
  CheckCrowdedAttention(report, 64, /*group=*/1, /*kv_heads=*/10, "cuda");
  CheckCrowdedAttention(report, 128, /*group=*/1, /*kv_heads=*/10, "cuda");
  CheckCrowdedAttention(report, 64, /*group=*/4, /*kv_heads=*/4, "cuda");
  CheckCrowdedAttention(report, 128, /*group=*/4, /*kv_heads=*/4, "cuda");
}

}  // namespace spry::testing
