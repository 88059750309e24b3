// spry_bench_gemm [form] [threads] [avx2]: how fast the CPU's linear op is, by shape and number of
// rows.
//
// Every shape is bound several times, to more bytes than the last cache holds, and the copies are
// used in turn: a decode step finds its weights in memory, not in a cache. One call is timed at a
// time; the best and the median are printed, since other processes disturb the rest.
//   GB/s: packed weight bytes by the best time. GOP/s: 2 M N K by the best time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "device/cpu/kernel_sets.h"
#include "ops/linear.h"

namespace spry {
namespace {

struct GemmShape {
  int64_t n = 0;
  int64_t k = 0;
};
constexpr GemmShape kShapes[] = {
    // SmolLM2-135M: qkv, o, gate and up, down, lm_head.
    {960, 576},
    {576, 576},
    {3072, 576},
    {576, 1536},
    {49152, 576},
    // opt-125m: qkv, o, fc1, fc2, lm_head.
    {2304, 768},
    {768, 768},
    {3072, 768},
    {768, 3072},
    {50272, 768},
};
constexpr int32_t kRowCounts[] = {1, 8, 64, 512};
constexpr int64_t kColdBytes = int64_t{128} << 20;

struct BenchForm {
  std::string_view name;
  DType dtype;
  DType compute;
};
constexpr BenchForm kBenchForms[] = {
    {"q4_0", DType::kQ4_0, DType::kBF16},     {"q4_1", DType::kQ4_1, DType::kBF16},
    {"q8_0", DType::kQ8_0, DType::kBF16},     {"bf16", DType::kBF16, DType::kBF16},
    {"q5_0", DType::kQ5_0, DType::kBF16},     {"q5_1", DType::kQ5_1, DType::kBF16},
    {"q2_k", DType::kQ2_K, DType::kBF16},     {"q3_k", DType::kQ3_K, DType::kBF16},
    {"q4_k", DType::kQ4_K, DType::kBF16},     {"q5_k", DType::kQ5_K, DType::kBF16},
    {"q6_k", DType::kQ6_K, DType::kBF16},     {"iq4_nl", DType::kIQ4_NL, DType::kBF16},
    {"iq4_xs", DType::kIQ4_XS, DType::kBF16}, {"f16", DType::kF16, DType::kF16},
    {"f32", DType::kF32, DType::kF32},
};

// Bytes that are finite numbers in every dtype (no exponent of all ones).
std::vector<std::byte> WeightBytes(int64_t bytes) {
  std::mt19937 random(1);
  std::vector<std::byte> data(bytes);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random() & 0x37);
  return data;
}

struct StepJob {
  BoundCall call;
  StepState state;
};
void RunStep(const void* context, Worker& worker) {
  const StepJob& job = *static_cast<const StepJob*>(context);
  job.call.run(job.call.args, job.state, worker);
}

struct Times {
  double best_us = 0;
  double median_us = 0;
};

Times Measure(WorkerPool& pool, const std::vector<BoundCall>& calls, int32_t rows, double ops) {
  StepHeader header{.num_tokens = rows};
  StepJob job{.state = {.header = &header}};
  const int repeats = static_cast<int>(std::clamp(2e11 / ops, 20.0, 3000.0));
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    job.call = calls[i % calls.size()];
    const auto start = std::chrono::steady_clock::now();
    pool.Run(RunStep, &job);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count());
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

Status BenchShape(const BenchForm& form, const GemmShape& shape, const KernelTable& kernels,
                  WorkerPool& pool) {
  const std::vector<std::byte> data = WeightBytes(shape.n * RowBytes(form.dtype, shape.k));
  const Shape dims({shape.n, shape.k});
  const WeightHandle handle = {
      .name = "w", .dtype = form.dtype, .shape = dims, .read = [&]() -> Result<HostTensor> {
        return HostTensor{form.dtype, dims, data, nullptr};
      }};
  Tracer tracer("bench", {.compute = form.compute});
  const Tensor x = tracer.NewBuffer("x", RowDim::kTokens, shape.k, DType::kF32);
  Linear(tracer, x, {&handle, 1}, {}, {});
  SPRY_ASSIGN_OR_RETURN(const Program program, tracer.Finish(1));
  const StepLimits limits = {.max_tokens = 512, .max_rows = 1, .max_samples = 1};
  SPRY_ASSIGN_OR_RETURN(const std::unique_ptr<BindContext> context,
                        BindContext::Create(program, limits, pool));
  const OpRecord& op = program.ops.back();
  std::vector<BoundCall> calls;
  const auto start = std::chrono::steady_clock::now();
  while (context->weight_bytes() < kColdBytes) {
    SPRY_ASSIGN_OR_RETURN(const BoundCall call,
                          kernels[static_cast<int>(OpId::kLinear)](op, *context));
    calls.push_back(call);
  }
  const std::chrono::duration<double> packing = std::chrono::steady_clock::now() - start;
  SPRY_RETURN_IF_ERROR(context->FinishBinding());
  float* rows = context->Resolve(x).Row(0);
  for (int64_t i = 0; i < 512 * shape.k; ++i) rows[i] = static_cast<float>(i * 7 % 31) - 15.0f;
  const double bytes = static_cast<double>(context->weight_bytes()) / calls.size();
  for (const int32_t m : kRowCounts) {
    const double ops = 2.0 * m * shape.n * shape.k;
    const Times times = Measure(pool, calls, m, ops);
    fmt::print(
        "{:6} {:6} x {:4}  M {:3}  best {:9.1f} us  median {:9.1f} us  {:6.1f} GB/s  "
        "{:7.1f} GOP/s\n",
        form.name, shape.n, shape.k, m, times.best_us, times.median_us,
        bytes / times.best_us * 1e-3, ops / times.best_us * 1e-3);
  }
  fmt::print("      packed at {:.2f} GB/s\n",
             static_cast<double>(context->weight_bytes()) / packing.count() * 1e-9);
  return {};
}

int Main(std::string_view wanted, int threads, bool only_avx2) {
  const std::unique_ptr<WorkerPool> pool = *WorkerPool::Create(threads);
  KernelTable kernels = {};
  UseAvx2Kernels(kernels);
  if (!only_avx2 && __builtin_cpu_supports("avx512f")) UseAvx512Kernels(kernels);
  for (const BenchForm& form : kBenchForms) {
    if (!wanted.empty() && wanted != form.name) continue;
    for (const GemmShape& shape : kShapes) {
      if (shape.k % Traits(form.dtype).block_elements != 0) continue;
      const Status status = BenchShape(form, shape, kernels, *pool);
      if (!status.ok()) {
        fmt::print(stderr, "{}\n", status.message());
        return 1;
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace spry

int main(int argc, char** argv) {
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  const bool only_avx2 = argc > 3 && std::string_view(argv[3]) == "avx2";
  return spry::Main(wanted, threads, only_avx2);
}
