// spry_bench_ops [threads] [isa] [kv] [op]: what the CPU's small ops cost at the shapes of two
// small models (`spry bench gemm` and `spry bench attention` time the large ones): isa reference,
// avx2 or avx512; kv float32, bfloat16 or float16; only the op named.
//
// Every op is bound once per layer, with caches of its own, and all layers run one after another
// with a barrier after each, as in a step; the time of one op is printed: the best of some rounds,
// since other processes disturb the rest, and the median.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "device/cpu/kernel_sets.h"
#include "ops/activation.h"
#include "ops/add.h"
#include "ops/attention/attention.h"
#include "ops/embed.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/sampling.h"

namespace spry {
namespace {

struct ModelShape {
  std::string_view name;
  int layers, heads, kv_heads, head_dim, feed_forward, vocab;
  bool llama;  // rms_norm, rope, gated silu; or layer_norm and relu
};
constexpr ModelShape kModels[] = {
    {"smollm2-135m", 30, 9, 3, 64, 1536, 49152, true},
    {"opt-125m", 12, 12, 12, 64, 3072, 50272, false},
};

struct StepShape {
  std::string_view name;
  int rows;     // requests
  int tokens;   // of each
  int context;  // tokens of each before the step
};
constexpr StepShape kSteps[] = {
    {"decode, 1 row, context 160", 1, 1, 160},   {"decode, 8 rows, context 160", 8, 1, 160},
    {"decode, 1 row, context 2000", 1, 1, 2000}, {"prefill, 512 tokens", 1, 512, 0},
    {"prefill, 8 x 32 tokens", 8, 32, 0},
};

constexpr int kBlockSize = 16;
constexpr int kMaxLength = 2048;
constexpr int kMaxRows = 8;

WeightHandle FloatHandle(std::string name, const Shape& shape) {
  return {.name = std::move(name), .dtype = DType::kF32, .shape = shape, .read = [=] {
            const int64_t count = *shape.elements();
            auto data = std::make_shared<std::vector<float>>(count);
            for (int64_t i = 0; i < count; ++i)
              (*data)[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
            return Result<HostTensor>(
                HostTensor{DType::kF32, shape, std::as_bytes(std::span(*data)), data});
          }};
}

Result<Program> TraceOps(const ModelShape& m, DType kv) {
  Tracer t("ops", {.kv = kv, .max_length = kMaxLength});
  const int64_t hidden = int64_t{m.heads} * m.head_dim;
  const int64_t kv_width = int64_t{m.kv_heads} * m.head_dim;
  Tensor x = Embed(t, FloatHandle("table", Shape{1000, hidden}));
  const WeightHandle norm = FloatHandle("norm", Shape{hidden});
  const Tensor qkv = t.NewBuffer("qkv", RowDim::kTokens, hidden + 2 * kv_width, DType::kF32);
  const Tensor q = qkv.Columns(0, hidden);
  const Tensor k = qkv.Columns(hidden, kv_width), v = qkv.Columns(hidden + kv_width, kv_width);
  const Tensor up = t.NewBuffer("up", RowDim::kTokens, 2 * m.feed_forward, DType::kF32);
  WeightId table;
  if (m.llama) table = AddRopeTable(t, std::vector<double>(m.head_dim / 2, 0.01));
  for (int layer = 0; layer < m.layers; ++layer) {
    if (m.llama) {
      RmsNorm(t, x, norm, {});
      Rope(t, q, k, table,
           {.num_heads = m.heads,
            .num_kv_heads = m.kv_heads,
            .head_dim = m.head_dim,
            .rotary_dim = m.head_dim});
      GatedActivate(t, up, Activation::kSilu);
    } else {
      LayerNorm(t, x, norm, norm, {});
      Activate(t, up.Columns(0, m.feed_forward), Activation::kRelu);
    }
    Attention(t, q, k, v,
              {.num_heads = m.heads,
               .num_kv_heads = m.kv_heads,
               .head_dim = m.head_dim,
               .v_head_dim = m.head_dim,
               .scale = 0.125f});
    Add(t, x, x);
  }
  const Tensor logits = t.NewBuffer("logits", RowDim::kSamples, m.vocab, DType::kF32);
  GatherSamples(t, x);
  SampleAndAdvance(t, logits);
  return t.Finish(m.vocab);
}

void FillStep(const StepShape& shape, const StepLimits& limits, const RowParams& params,
              StepState& state) {
  *state.header = {
      .num_tokens = shape.rows * shape.tokens, .num_rows = shape.rows, .num_samples = shape.rows};
  for (int r = 0; r < shape.rows; ++r) {
    state.row_states[r] = {.params = params};
    state.row_states[r].params.seed = r;
    for (int i = 0; i < limits.max_blocks_per_row; ++i) {
      state.block_tables[r * limits.max_blocks_per_row + i] = i * kMaxRows + r;
    }
    state.rows[r] = {.row = r,
                     .query_start = r * shape.tokens,
                     .num_tokens = shape.tokens,
                     .start = shape.context,
                     .sample_index = r,
                     .num_samples = 1,
                     .live = 1};
    state.sample_rows[r] = r;
    state.sample_tokens[r] = (r + 1) * shape.tokens - 1;
    state.sample_targets[r] = -1;
    for (int i = 0; i < shape.tokens; ++i) {
      const int t = r * shape.tokens + i;
      state.token_ids[t] = t * 37 % 1000;
      state.positions[t] = shape.context + i;
      state.token_rows[t] = r;
    }
  }
}

struct Job {
  std::vector<BoundCall> calls;
  StepState state;
};
void RunCalls(const void* context, Worker& worker) {
  const Job& job = *static_cast<const Job*>(context);
  for (const BoundCall& call : job.calls) {
    call.run(call.args, job.state, worker);
    worker.Barrier();
  }
}

class OpsBench {
 public:
  OpsBench(const Program& program, const KernelTable& kernels, const CpuAttentionBackend& attention,
           WorkerPool& pool, std::string_view only)
      : program_(program),
        kernels_(kernels),
        attention_(attention),
        pool_(pool),
        only_(only),
        limits_{.max_tokens = 512,
                .max_rows = kMaxRows,
                .max_samples = kMaxRows,
                .max_blocks_per_row = kMaxLength / kBlockSize,
                .max_block_writes = 1,
                .block_size = kBlockSize,
                .num_blocks = kMaxRows * kMaxLength / kBlockSize},
        context_(*BindContext::Create(program, limits_, pool)),
        memory_(StepStateBytes(limits_) + 64) {
    void* base = memory_.data();
    size_t space = memory_.size();
    std::align(64, memory_.size() - 64, base, space);
    state_ = MapStepState(limits_, static_cast<std::byte*>(base));
  }

  Status Bind() {
    SPRY_RETURN_IF_ERROR(context_->AllocateKv(attention_.bytes_per_block));
    for (const OpRecord& op : program_.ops) {
      BindFn bind = kernels_[static_cast<int>(op.id)];
      if (op.id == OpId::kWriteKv) bind = attention_.bind_write_kv;
      if (op.id == OpId::kAttention) bind = attention_.bind_attention;
      if (bind == nullptr) continue;  // stage, advance
      SPRY_ASSIGN_OR_RETURN(const BoundCall call, bind(op, *context_));
      calls_.push_back(call);
    }
    SPRY_RETURN_IF_ERROR(context_->FinishBinding());
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    for (const OpRecord& op : program_.ops) {
      if (op.inputs.empty()) continue;
      const Matrix x = context_->Resolve(op.inputs[0]);
      const int64_t rows = x.rows == RowDim::kTokens ? limits_.max_tokens : limits_.max_samples;
      for (int64_t i = 0; i < rows * x.stride; ++i) x.Row(0)[i] = normal(random);
      if (op.id == OpId::kWriteKv) break;
    }
    return {};
  }

  // Last, as buffers share memory with those that are used before them.
  void FillLogits() {
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    const Matrix logits = context_->Resolve(program_.logits);
    for (int64_t i = 0; i < kMaxRows * logits.width; ++i) logits.Row(0)[i] = normal(random);
  }

  void Run(const StepShape& shape, OpId op, const RowParams& params, std::string_view note) {
    if (!only_.empty() && only_ != OpName(op)) return;
    FillStep(shape, limits_, params, state_);
    Job job{.state = state_};
    for (const BoundCall& call : calls_) {
      if (call.op == op) job.calls.push_back(call);
    }
    if (job.calls.empty()) return;
    std::vector<double> times;
    double total = 0;
    while (total < 0.15e6 && times.size() < 400) {
      const double start = Now();
      pool_.Run(RunCalls, &job);
      const double took = Now() - start;
      total += took;
      times.push_back(took / static_cast<double>(job.calls.size()));
    }
    std::sort(times.begin(), times.end());
    fmt::print("  {:28} {:16}{:22} best {:9.2f} us  median {:9.2f} us\n", shape.name, OpName(op),
               note, times.front(), times[times.size() / 2]);
  }

 private:
  // Microseconds; one thread alone is timed by its own clock, which stands still for others.
  double Now() const {
    timespec time;
    clock_gettime(pool_.size() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  }

  const Program& program_;
  const KernelTable& kernels_;
  const CpuAttentionBackend& attention_;
  WorkerPool& pool_;
  std::string_view only_;
  StepLimits limits_;
  std::unique_ptr<BindContext> context_;
  std::vector<std::byte> memory_;
  StepState state_;
  std::vector<BoundCall> calls_;
};

Status RunModel(const ModelShape& model, DType kv, const KernelTable& kernels,
                const CpuAttentionBackend& attention, WorkerPool& pool, std::string_view only) {
  SPRY_ASSIGN_OR_RETURN(const Program program, TraceOps(model, kv));
  OpsBench bench(program, kernels, attention, pool, only);
  SPRY_RETURN_IF_ERROR(bench.Bind());
  fmt::print("{}\n", model.name);
  for (const StepShape& shape : kSteps) {
    for (const OpId op :
         {OpId::kEmbed, OpId::kLayerNorm, OpId::kRmsNorm, OpId::kRope, OpId::kWriteKv,
          OpId::kActivation, OpId::kGatedActivation, OpId::kAdd, OpId::kGatherSamples}) {
      bench.Run(shape, op, {}, "");
    }
  }
  bench.FillLogits();
  for (const StepShape& shape : {kSteps[0], kSteps[1]}) {
    bench.Run(shape, OpId::kSample, {}, "greedy");
    bench.Run(shape, OpId::kSample, {.temperature = 0.8f}, "temperature");
    bench.Run(shape, OpId::kSample, {.temperature = 0.8f, .top_k = 40}, "top_k");
    bench.Run(shape, OpId::kSample, {.temperature = 0.8f, .top_p = 0.95f}, "top_p");
    bench.Run(shape, OpId::kSample, {.temperature = 0.8f, .min_p = 0.05f}, "min_p");
    bench.Run(shape, OpId::kSample, {.num_logprobs = 5}, "greedy, logprobs");
  }
  return {};
}

int Main(int threads, std::string_view isa, std::string_view kv_name, std::string_view only) {
  const std::unique_ptr<WorkerPool> pool = *WorkerPool::Create(threads);
  KernelTable kernels = ReferenceKernels();
  CpuAttentionBackend attention = ReferenceAttention();
  if (isa == "avx2" || isa == "avx512") {
    UseAvx2Kernels(kernels);
    attention = Avx2Attention();
  }
  if (isa == "avx512") {
    UseAvx512Kernels(kernels);
    attention = Avx512Attention();
  }
  DType kv = DType::kBF16;
  for (const DType dtype : attention.facts.kvs) {
    if (Traits(dtype).name == kv_name) kv = dtype;
  }
  for (const ModelShape& model : kModels) {
    const Status status = RunModel(model, kv, kernels, attention, *pool, only);
    if (!status.ok()) {
      fmt::print(stderr, "{}\n", status.message());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace spry

int main(int argc, char** argv) {
  return spry::Main(argc > 1 ? std::atoi(argv[1]) : 2, argc > 2 ? argv[2] : "avx512",
                    argc > 3 ? argv[3] : "bfloat16", argc > 4 ? argv[4] : "");
}
