// spry bench overhead: what a steady decode step costs the host. The engine runs opt-125m's shape
// on the null device, so nothing is computed and all that is left is scheduling, bookkeeping and
// the step protocol. Requests neither join nor leave while it is measured; blocks grow.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <vector>

#include "app/bench_run.h"
#include "app/command.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/percentiles.h"
#include "app/write_text.h"
#include "base/allocation_counter.h"
#include "checkpoint/dummy_weights.h"
#include "device/null/null_device.h"

namespace spry {
namespace {

namespace json = boost::json;

constexpr int kSteps = 10'000;
constexpr int kWarmSteps = 200;
constexpr int kPartSteps = 1'000;   // the first and the last that many are compared
constexpr int kBlockSize = 16;      // tokens
constexpr int kPromptTokens = 32;   // and up to kBlockSize - 1 more
constexpr int kFillTokens = 2'048;  // prompt tokens in a step, beside the rows that decode
constexpr int kFillSteps = 256;     // enough for the prompts of all rows
constexpr int kMaxLength = kPromptTokens + kBlockSize + kFillSteps + kWarmSteps + kSteps;
constexpr int kMaxRows = kFillSteps * kFillTokens / (kPromptTokens + kBlockSize);

struct OverheadFlags {
  std::vector<int> rows = {1, 8, 64, 256, 1024};
  bool prefix_caching = true;
  int run_ahead = 1;
  std::string json;
};

struct Overhead {
  int rows = 0;
  double p50_ns = 0;
  double p99_ns = 0;
  double first_p50_ns = 0;  // of the first kPartSteps
  double last_p50_ns = 0;   // of the last
  double allocations = 0;   // per step
};

// opt-125m, but for the positions: one request lives through all steps.
ModelConfig Opt125m() {
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
  config.max_position = kMaxLength;
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

Result<std::unique_ptr<Engine>> MakeEngine(const OverheadFlags& flags, int rows) {
  constexpr uint64_t kSeed = 0;
  Checkpoint checkpoint{.format = "dummy", .config = Opt125m()};
  checkpoint.weights = MakeDummyWeights(checkpoint.config.dtype, kSeed);
  std::unique_ptr<Device> device = MakeNullDevice({});
  EngineOptions options;
  options.prefix_caching = flags.prefix_caching;
  MemoryOptions& memory = options.runner.memory;
  memory.max_rows = rows;
  memory.max_step_tokens = rows + kFillTokens;
  memory.max_model_len = kMaxLength;
  memory.block_size = kBlockSize;
  memory.run_ahead = flags.run_ahead;
  // Blocks for every row at its longest, so that nothing is preempted.
  SPRY_ASSIGN_OR_RETURN(const ModelPlan plan, PlanModel(*device, checkpoint, options.runner));
  memory.kv_bytes =
      plan.memory.needs.kv_per_block * rows * ((kMaxLength + kBlockSize - 1) / kBlockSize);
  return Engine::Create(std::move(device), checkpoint, options);
}

// Submits the rows and steps until all of them decode. Prompt lengths differ, so that blocks grow
// in every step for some rows and not in one step for all.
Status Fill(Engine& engine, int rows) {
  std::mt19937_64 random(static_cast<uint64_t>(rows));
  for (int i = 0; i < rows; ++i) {
    constexpr int kLow = 0;
    GenerationRequest request =
        BenchRequest(RandomPrompt(random, kPromptTokens + i % kBlockSize, kLow,
                                  RandomIdsEnd(engine.program().vocab_size)),
                     kMaxLength);
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

double MedianOf(const std::vector<double>& values, int begin, int count) {
  return Percentiles({values.begin() + begin, values.begin() + begin + count}).At(50);
}

Result<Overhead> Measure(const OverheadFlags& flags, int rows) {
  SPRY_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, MakeEngine(flags, rows));
  SPRY_RETURN_IF_ERROR(Fill(*engine, rows));

  std::vector<double> nanos(kSteps);
  const uint64_t allocations_before = ThreadAllocations();
  for (double& step : nanos) {
    const auto before = std::chrono::steady_clock::now();
    Result<std::span<const TokenEvent>> events = engine->Step();
    const auto after = std::chrono::steady_clock::now();
    if (!events.ok()) return events.status();
    if (events->size() != static_cast<size_t>(rows)) {
      return Internal(fmt::format("a step gave {} tokens for {} rows", events->size(), rows));
    }
    step = std::chrono::duration<double, std::nano>(after - before).count();
  }
  const uint64_t allocations = ThreadAllocations() - allocations_before;

  const Percentiles percentiles(nanos);
  return Overhead{.rows = rows,
                  .p50_ns = percentiles.At(50),
                  .p99_ns = percentiles.At(99),
                  .first_p50_ns = MedianOf(nanos, 0, kPartSteps),
                  .last_p50_ns = MedianOf(nanos, kSteps - kPartSteps, kPartSteps),
                  .allocations = static_cast<double>(allocations) / kSteps};
}

std::string ToJson(const std::vector<Overhead>& results) {
  json::array list;
  for (const Overhead& result : results) {
    list.push_back(
        json::object{{"rows", result.rows},
                     {"host_ns_per_step", {{"p50", result.p50_ns}, {"p99", result.p99_ns}}},
                     {"heap_allocations_per_step", result.allocations}});
  }
  return json::serialize(list) + "\n";
}

Result<int> RunOverhead(const OverheadFlags& flags) {
  SPRY_RETURN_IF_ERROR(CheckWritable(flags.json));
  SPRY_RETURN_IF_ERROR(WriteStdout(fmt::format(
      "Host time of a decode step: opt-125m shape, null device, prefix caching {}, run-ahead {}, "
      "{} steps\n{:>6} {:>12} {:>12} {:>14} {:>14} {:>16}\n",
      flags.prefix_caching ? "on" : "off", flags.run_ahead, kSteps, "rows", "p50 us", "p99 us",
      "first 1k p50", "last 1k p50", "allocations/step")));
  std::vector<Overhead> results;
  for (const int rows : flags.rows) {
    SPRY_ASSIGN_OR_RETURN(const Overhead r, Measure(flags, rows));
    results.push_back(r);
    SPRY_RETURN_IF_ERROR(WriteStdout(
        fmt::format("{:>6} {:>12.2f} {:>12.2f} {:>14.2f} {:>14.2f} {:>16}\n", rows, r.p50_ns / 1e3,
                    r.p99_ns / 1e3, r.first_p50_ns / 1e3, r.last_p50_ns / 1e3, r.allocations)));
  }
  if (!flags.json.empty()) SPRY_RETURN_IF_ERROR(WriteFile(flags.json, ToJson(results)));
  return kExitDone;
}

}  // namespace

Command AddBenchOverhead(CLI::App& parent) {
  const auto flags = std::make_shared<OverheadFlags>();
  CLI::App& parser = *parent.add_subcommand("overhead", "Host time and heap allocations of a step");
  parser.footer(
      "No model is needed: opt-125m's shape is built in and the null device computes nothing.\n\n"
      "Example:\n  spry bench overhead --rows 8,256 --json overhead.json");
  const char* group = "Benchmark";
  parser.add_option("--rows", flags->rows, "Sequences in a step [1,8,64,256,1024]")
      ->check(Between(1, kMaxRows))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(group);
  parser
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", flags->prefix_caching,
                "Share the KV blocks of equal prefixes [on]")
      ->group(group);
  parser.add_option("--run-ahead", flags->run_ahead, "Steps in flight, up to 64 [1]")
      ->check(Between(1, 64))
      ->type_name("INT")
      ->group(group);
  parser.add_option("--json", flags->json, "Write the results there, a list of objects")
      ->type_name("FILE")
      ->group(group);
  return {.parser = &parser, .run = [flags] { return RunOverhead(*flags); }};
}

}  // namespace spry
