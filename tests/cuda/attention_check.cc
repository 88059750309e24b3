#include <fmt/format.h>

#include "ops/attention/attention.h"
#include "ops/embed.h"
#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"
#include "tests/device/cpu_targets.h"

namespace spry::testing {
namespace {

struct AttentionCase {
  const char* name;
  AttentionParams params;
  DType kv = DType::kF32;
  int block_size = 16;
};

std::vector<AttentionCase> Cases() {
  const AttentionParams heads{
      .num_heads = 4, .num_kv_heads = 4, .head_dim = 64, .v_head_dim = 64, .scale = 0.125f};
  const AttentionParams grouped{
      .num_heads = 6, .num_kv_heads = 2, .head_dim = 40, .v_head_dim = 24, .scale = 0.2f};
  const auto with = [](AttentionParams params, const auto& change) {
    change(params);
    return params;
  };
  return {
      {"attention", heads},
      {"attention, blocks of 8", heads, DType::kF32, 8},
      {"attention, blocks of 256", heads, DType::kF32, 256},
      {"attention, grouped heads, Dv < D", grouped},
      {"attention, bf16 KV", heads, DType::kBF16},
      {"attention, f16 KV", grouped, DType::kF16},
      {"attention, window 100", with(heads, [](AttentionParams& p) { p.window = 100; })},
      {"attention, window 600", with(grouped, [](AttentionParams& p) { p.window = 600; })},
      {"attention, soft cap", with(heads, [](AttentionParams& p) { p.soft_cap = 2.0f; })},
      {"attention, alibi", with(heads, [](AttentionParams& p) { p.has_alibi = true; })},
      {"attention, sinks", with(grouped, [](AttentionParams& p) { p.has_sinks = true; })},
      {"attention, everything",
       with(grouped,
            [](AttentionParams& p) {
              p.window = 700;
              p.soft_cap = 3.0f;
              p.has_alibi = p.has_sinks = true;
            }),
       DType::kBF16, 32},
  };
}

constexpr int kTableRows = 61;
constexpr int kMaxTokens = 512;
constexpr int kMaxLength = 1280;
constexpr int kRows = 3;

// q, k and v are columns of an embedded row, so that token ids decide everything.
Program TraceCase(const AttentionCase& attention_case, const TestWeight& table) {
  AttentionParams params = attention_case.params;
  Tracer tracer("attention", {.kv = attention_case.kv, .max_length = kMaxLength});
  const Tensor x = Embed(tracer, table.handle);
  const int64_t q_width = int64_t{params.num_heads} * params.head_dim;
  const int64_t k_width = int64_t{params.num_kv_heads} * params.head_dim;
  const int64_t v_width = int64_t{params.num_kv_heads} * params.v_head_dim;
  params.layer = tracer.AddKvLayer({.num_kv_heads = params.num_kv_heads,
                                    .head_dim = params.head_dim,
                                    .v_head_dim = params.v_head_dim,
                                    .dtype = attention_case.kv});
  tracer.Emit({.id = OpId::kWriteKv,
               .inputs = {x.Columns(q_width, k_width), x.Columns(q_width + k_width, v_width)},
               .params = OpParams::Of(WriteKvParams{params.layer})});
  const Tensor out = tracer.NewBuffer("attention", RowDim::kTokens,
                                      int64_t{params.num_heads} * params.v_head_dim, DType::kF32);
  OpRecord op{.id = OpId::kAttention,
              .inputs = {x.Columns(0, q_width)},
              .outputs = {out},
              .params = OpParams::Of(params)};
  const auto add_weight = [&](const char* name, float scale, uint64_t seed) {
    const TestWeight weight = RandomWeight(name, DType::kF32, Shape{params.num_heads}, scale, seed);
    op.weights.Add(tracer.AddWeight({&weight.handle, 1}));
  };
  if (params.has_alibi) add_weight("slopes", 0.05f, 31);
  if (params.has_sinks) add_weight("sinks", 2.0f, 32);
  tracer.Emit(op);
  tracer.SetLogits(out);
  tracer.Emit({.id = OpId::kAdvance});
  return *tracer.Finish(kTableRows);
}

// Three rows of different lengths read in chunks, each row's blocks scattered over the pool.
// Every token is a sample of its own row, so that all outputs can be read.
class AttentionRun {
 public:
  AttentionRun(const AttentionCase& attention_case, const Target& target)
      : table_(RandomWeight("inputs", DType::kF32, Shape{kTableRows, Width(attention_case.params)},
                            1.5f, 77)),
        program_(TraceCase(attention_case, table_)),
        block_size_(attention_case.block_size) {
    const int blocks_per_row = kMaxLength / block_size_;
    executable_ = target.Compile(program_, {.max_tokens = kMaxTokens,
                                            .max_rows = kMaxTokens,
                                            .max_samples = kMaxTokens,
                                            .max_blocks_per_row = blocks_per_row,
                                            .max_block_writes = kRows * blocks_per_row,
                                            .block_size = block_size_,
                                            .num_blocks = kRows * blocks_per_row});
  }

  std::vector<float> Run(std::span<const int> chunks) {
    std::vector<float> outputs;
    int start = 0;
    for (const int chunk : chunks) {
      executable_->RunStep([&](StepWriter& step) { WriteStep(step, start, chunk); });
      const std::vector<float> output = executable_->Read(program_.logits, int64_t{kRows} * chunk);
      outputs.insert(outputs.end(), output.begin(), output.end());
      start += chunk;
    }
    return outputs;
  }

 private:
  static int64_t Width(const AttentionParams& p) {
    return int64_t{p.num_heads} * p.head_dim +
           int64_t{p.num_kv_heads} * (p.head_dim + p.v_head_dim);
  }

  void WriteStep(StepWriter& step, int start, int chunk) {
    RowParams endless;
    endless.max_outputs = INT32_MAX;
    for (int row = 0; row < kRows; ++row) {
      if (start == 0) {
        step.Join(row, endless);
        for (int i = 0; i < kMaxLength / block_size_; ++i) {
          step.WriteBlock(row, i, i * kRows + (row + i) % kRows);
        }
      }
      for (int i = 0; i < chunk; ++i) {
        const int32_t id = (row * 29 + (start + i) * 7 + (start + i) / 50) % kTableRows;
        step.Prefill(row, {&id, 1}, start + i, /*sample=*/true);
      }
    }
  }

  TestWeight table_;
  Program program_;
  int block_size_;
  std::unique_ptr<TestExecutable> executable_;
};

}  // namespace

void CheckAttention(Report& report, const CheckOptions& options) {
  auto device = LoadCuda(/*capture_graphs=*/true);
  const CudaTarget cuda(*std::move(device));
  const CpuTarget reference = ReferenceTarget(options.threads);
  // Across both segment borders (512, 1024), with chunks that stop on and beside them.
  const std::vector<int> chunks = {1, 7, 100, 160, 150, 94, 1, 1, 170, 170, 168, 2, 9};
  for (const AttentionCase& attention_case : Cases()) {
    const std::vector<float> expected = AttentionRun(attention_case, reference).Run(chunks);
    const std::vector<float> found = AttentionRun(attention_case, cuda).Run(chunks);
    const Comparison comparison = CompareBits(expected, found);
    report.Expect(comparison.equal, attention_case.name, comparison.detail);
  }
}

}  // namespace spry::testing
