#include "app/overhead_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "app/bench_run.h"
#include "app/devices.h"
#include "app/percentiles.h"
#include "base/allocation_counter.h"
#include "checkpoint/dummy_weights.h"

namespace spry {
namespace {

constexpr int kWarmSteps = 200;
constexpr int kBlockSize = 16;     // tokens
constexpr int kPromptTokens = 32;  // and up to kBlockSize - 1 more
constexpr int kFillSteps = 256;    // enough for the prompts of all rows
// Prompt tokens in a step, beside the rows that decode.
constexpr int kFillTokens = kMostOverheadRows / kFillSteps * (kPromptTokens + kBlockSize);

int MaxLength(int steps) { return kPromptTokens + kBlockSize + kFillSteps + kWarmSteps + steps; }

// opt-125m, but for the positions: one request lives through all steps.
ModelConfig Opt125m(int64_t max_length) {
  ModelConfig config;
  config.architecture = "OPTForCausalLM";
  config.dtype = DType::kF16;
  config.vocab_size = 50272;
  config.hidden_size = 768;
  config.intermediate_size = 3072;
  config.num_layers = 12;
  config.num_heads = 12;
  config.num_kv_heads = 12;
  config.head_dim = 64;
  config.max_position = max_length;
  config.tied_embeddings = true;
  config.attention_bias = true;
  config.output_bias = true;
  config.mlp_bias = true;
  config.activation = "relu";
  config.word_embed_proj_dim = 768;
  config.bos_token = TokenId(2);
  config.eos_tokens = {TokenId(2)};
  return config;
}

Result<std::unique_ptr<Engine>> MakeEngine(const OverheadOptions& overhead, int rows) {
  constexpr uint64_t kSeed = 0;
  const int max_length = MaxLength(overhead.steps);
  Checkpoint checkpoint{.format = "dummy", .config = Opt125m(max_length)};
  checkpoint.weights = MakeDummyWeights(checkpoint.config.dtype, kSeed);
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenDevice(overhead.device));
  EngineOptions options;
  options.prefix_caching = overhead.prefix_caching;
  MemoryOptions& memory = options.runner.memory;
  memory.max_rows = rows;
  memory.max_step_tokens = rows + kFillTokens;
  memory.max_model_len = max_length;
  memory.block_size = kBlockSize;
  memory.run_ahead = overhead.run_ahead;
  // Blocks for every row at its longest, so that nothing is preempted.
  SPRY_ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(*device, checkpoint, options.runner));
  memory.kv_bytes =
      plan.memory.needs.kv_per_block * rows * ((max_length + kBlockSize - 1) / kBlockSize);
  return Engine::Create(std::move(device), checkpoint, options);
}

// Submits the rows and steps until all of them decode. Prompt lengths differ, so that blocks grow
// in every step for some rows and not in one step for all.
Status Fill(Engine& engine, int rows, int max_length) {
  std::mt19937_64 random(static_cast<uint64_t>(rows));
  for (int i = 0; i < rows; ++i) {
    constexpr int kLow = 0;
    GenerationRequest request =
        BenchRequest(RandomPrompt(random, kPromptTokens + i % kBlockSize, kLow,
                                  RandomIdsEnd(engine.program().vocab_size)),
                     max_length);
    SPRY_RETURN_IF_ERROR(engine.Submit(std::move(request)).status());
  }
  size_t tokens = 0;
  while (tokens < static_cast<size_t>(rows)) {
    SPRY_ASSIGN_OR_RETURN(const std::span<const TokenEvent> events, engine.Step());
    tokens = events.size();
  }
  for (int i = 0; i < kWarmSteps; ++i) SPRY_RETURN_IF_ERROR(engine.Step().status());
  return {};
}

struct StepNanos {
  explicit StepNanos(size_t steps) : host(steps), all(steps) {}
  std::vector<double> host;
  std::vector<double> all;
};

Status RunSteps(Engine& engine, int rows, StepNanos& nanos) {
  for (size_t i = 0; i < nanos.all.size(); ++i) {
    const int64_t waited_before = engine.runner().waited_nanos();
    const auto before = std::chrono::steady_clock::now();
    Result<std::span<const TokenEvent>> events = engine.Step();
    const auto after = std::chrono::steady_clock::now();
    if (!events.ok()) return events.status();
    if (events->size() != static_cast<size_t>(rows)) {
      return Internal(fmt::format("a step gave {} tokens for {} rows", events->size(), rows));
    }
    nanos.all[i] = std::chrono::duration<double, std::nano>(after - before).count();
    nanos.host[i] =
        nanos.all[i] - static_cast<double>(engine.runner().waited_nanos() - waited_before);
  }
  return {};
}

double PercentileOf(std::span<const double> values, double percent) {
  std::vector<double> copy(values.begin(), values.end());
  return Percentiles(std::move(copy)).At(percent);
}

}  // namespace

Result<Overhead> MeasureOverhead(const OverheadOptions& options, int rows) {
  SPRY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, MakeEngine(options, rows));
  SPRY_RETURN_IF_ERROR(Fill(*engine, rows, MaxLength(options.steps)));
  const auto steps = static_cast<size_t>(options.steps);
  StepNanos nanos(steps);
  const uint64_t allocations_before = ThreadAllocations();
  SPRY_RETURN_IF_ERROR(RunSteps(*engine, rows, nanos));
  const uint64_t allocations = ThreadAllocations() - allocations_before;

  const std::span<const double> host = nanos.host;
  const size_t part = std::max<size_t>(1, steps / 10);
  Overhead overhead{.rows = rows,
                    .host_p50 = PercentileOf(host, 50),
                    .host_p99 = PercentileOf(host, 99),
                    .host_first_p50 = PercentileOf(host.first(part), 50),
                    .host_last_p50 = PercentileOf(host.last(part), 50),
                    .step_p50 = PercentileOf(nanos.all, 50),
                    .allocations = static_cast<double>(allocations) / options.steps};
  Result<LaunchCosts> launches = engine->runner().MeasureLaunches();
  if (launches.ok()) {
    overhead.launches = *launches;
  } else if (launches.status().code() != StatusCode::kUnimplemented) {
    return launches.status();
  }
  return overhead;
}

}  // namespace spry
