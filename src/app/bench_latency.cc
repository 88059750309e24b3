// spry bench latency: the time of one batch from submission to its last token, as vLLM's.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <numeric>
#include <vector>

#include "app/bench_run.h"
#include "app/command.h"
#include "app/device_peaks.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/load_model.h"
#include "app/op_profile.h"
#include "app/percentiles.h"
#include "app/write_text.h"

namespace spry {
namespace {

namespace json = boost::json;

constexpr double kQuietTail = 1.02;  // p99/p50 of fixed work on a machine left alone
constexpr int64_t kMaxReservedSteps = 1 << 24;
constexpr int64_t kMaxProfiledSteps = 4096;
constexpr int kPercentages[] = {10, 25, 50, 75, 90, 99};

struct LatencyFlags {
  DeviceFlags device;
  ModelFlags model;
  int input_len = 32;
  int output_len = 128;
  int batch_size = 8;
  int warmup_iters = 10;
  int iters = 30;
  bool tail_control = false;
  std::string output_json;
  std::string profile;
};

struct Latencies {
  std::vector<double> seconds;  // per iteration
  RunTotals totals;             // over the timed iterations
  StepTimes steps;
  std::unique_ptr<TailControl> control;
};

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Status Warm(const LatencyFlags& flags, const LoadedModel& model,
            std::span<const GenerationRequest> requests, Latencies& latencies) {
  StepTimes steps;
  for (int i = 0; i < flags.warmup_iters; ++i) {
    SPRY_ASSIGN_OR_RETURN(const RunTotals ignored,
                          RunToEnd(*model.engine, model.tokenizer.get(), requests, &steps));
    static_cast<void>(ignored);
  }
  if (!flags.tail_control) return {};
  if (steps.decode_us.empty()) {
    return InvalidArgument(
        "--tail-control takes its length from warm-up steps: --num-iters-warmup must be 1 or more "
        "and --output-len 2 or more");
  }
  const int threads =
      model.engine->device().name() == "cpu" ? ThreadsOrDefault(flags.device.cpu.threads) : 1;
  SPRY_ASSIGN_OR_RETURN(latencies.control,
                        TailControl::Create(threads, Percentiles(steps.decode_us).At(50)));
  latencies.steps.control = latencies.control.get();
  return {};
}

Result<std::vector<GenerationRequest>> MakeRequests(const LatencyFlags& flags,
                                                    const LoadedModel& model) {
  SPRY_RETURN_IF_ERROR(
      CheckPrompts(*model.engine, flags.input_len, int64_t{flags.batch_size} * flags.input_len));
  std::mt19937_64 random(flags.model.engine.seed);
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < flags.batch_size; ++i) {
    constexpr int kLow = 0;
    requests.push_back(BenchRequest(
        RandomPrompt(random, flags.input_len, kLow, RandomIdsEnd(model.config.vocab_size)),
        flags.output_len));
  }
  return requests;
}

Status Measure(const LatencyFlags& flags, const LoadedModel& model,
               std::span<const GenerationRequest> requests, Latencies& latencies) {
  SPRY_RETURN_IF_ERROR(Warm(flags, model, requests, latencies));
  latencies.steps.decode_us.reserve(
      std::min(int64_t{flags.iters} * flags.output_len, kMaxReservedSteps));
  for (int i = 0; i < flags.iters; ++i) {
    SPRY_ASSIGN_OR_RETURN(const RunTotals totals, RunToEnd(*model.engine, model.tokenizer.get(),
                                                           requests, &latencies.steps));
    latencies.seconds.push_back(totals.seconds);
    latencies.totals.prompt_tokens += totals.prompt_tokens;
    latencies.totals.cached_tokens += totals.cached_tokens;
    latencies.totals.output_tokens += totals.output_tokens;
  }
  return {};
}

// Controls run only beside decode steps, of which a short output has none.
bool HasControl(const Latencies& latencies) {
  return latencies.control && !latencies.control->arithmetic_us().empty();
}

bool IsQuiet(const std::vector<double>& times_us) {
  const Percentiles percentiles(times_us);
  return percentiles.At(99) <= kQuietTail * percentiles.At(50);
}

json::object Summary(const std::vector<double>& times_us) {
  const Percentiles percentiles(times_us);
  const double p50 = percentiles.At(50), p99 = percentiles.At(99);
  return {{"count", times_us.size()}, {"p50", p50}, {"p99", p99}, {"p99_over_p50", p99 / p50}};
}

std::string ToJson(const Latencies& latencies) {
  const Percentiles percentiles(latencies.seconds);
  json::object by_percent;
  for (const int percent : kPercentages) {
    by_percent[std::to_string(percent)] = percentiles.At(percent);
  }
  const RunTotals& totals = latencies.totals;
  json::object spry = {{"prompt_tokens", totals.prompt_tokens},
                       {"cached_tokens", totals.cached_tokens},
                       {"output_tokens", totals.output_tokens},
                       {"prefix_cache_hit_rate", totals.hit_rate()}};
  if (!latencies.steps.decode_us.empty()) {
    spry["decode_step_us"] = Summary(latencies.steps.decode_us);
  }
  if (HasControl(latencies)) {
    spry["tail_control_us"] = Summary(latencies.control->arithmetic_us());
    spry["tail_control_memory_us"] = Summary(latencies.control->memory_us());
  }
  return json::serialize(json::object{{"avg_latency", Mean(latencies.seconds)},
                                      {"latencies", json::value_from(latencies.seconds)},
                                      {"percentiles", std::move(by_percent)},
                                      {"spry", std::move(spry)}}) +
         "\n";
}

std::string Line(const char* name, const std::vector<double>& times_us) {
  const Percentiles percentiles(times_us);
  const double p50 = percentiles.At(50), p99 = percentiles.At(99);
  return fmt::format("{}: p50 {:.1f} us, p99 {:.1f} us, p99/p50 {:.3f} ({} steps)\n", name, p50,
                     p99, p99 / p50, percentiles.size());
}

std::string ToText(const Latencies& latencies) {
  std::string text = fmt::format("Avg latency: {:.4g} seconds\n", Mean(latencies.seconds));
  const Percentiles percentiles(latencies.seconds);
  for (const int percent : kPercentages) {
    text +=
        fmt::format("{}% percentile latency: {:.4g} seconds\n", percent, percentiles.At(percent));
  }
  const RunTotals& totals = latencies.totals;
  text += fmt::format("Prefix cache: {} of {} prompt tokens hit ({:.1f}%)\n", totals.cached_tokens,
                      totals.prompt_tokens, 100.0 * totals.hit_rate());
  if (!latencies.steps.decode_us.empty()) text += Line("Decode step", latencies.steps.decode_us);
  if (HasControl(latencies)) {
    const TailControl& control = *latencies.control;
    text += Line("Tail control, arithmetic", control.arithmetic_us());
    text += Line("Tail control, memory", control.memory_us());
    if (!IsQuiet(control.arithmetic_us()) || !IsQuiet(control.memory_us())) {
      text += "The machine was not quiet: the tail of the steps says nothing about the engine\n";
    }
  }
  return text;
}

// One iteration more, with cold prefixes, so that prompts show too.
Status ProfileOnce(const LatencyFlags& flags, const LoadedModel& model,
                   std::span<const GenerationRequest> requests) {
  Engine& engine = *model.engine;
  StepProfile profile(engine.program().ops.size(), kMaxProfiledSteps);
  engine.ResetPrefixCache();
  SPRY_RETURN_IF_ERROR(engine.runner().Profile(&profile));
  SPRY_ASSIGN_OR_RETURN(const RunTotals ignored,
                        RunToEnd(engine, model.tokenizer.get(), requests, /*times=*/nullptr));
  static_cast<void>(ignored);
  SPRY_RETURN_IF_ERROR(engine.runner().Profile(nullptr));
  SPRY_ASSIGN_OR_RETURN(const DevicePeaks peaks, PeaksOf(engine.device(), flags.device));
  SPRY_RETURN_IF_ERROR(WriteStdout(ProfileText(engine.program(), profile.steps(), peaks)));
  return WriteFile(flags.profile, ProfileTrace(engine.program(), profile.steps()));
}

Result<int> RunLatency(const LatencyFlags& flags) {
  SPRY_RETURN_IF_ERROR(CheckWritable(flags.output_json));
  SPRY_RETURN_IF_ERROR(CheckWritable(flags.profile));
  SPRY_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(flags.device, flags.model));
  // A device that cannot do it says so before the work.
  if (!flags.profile.empty()) SPRY_RETURN_IF_ERROR(model.engine->runner().Profile(nullptr));
  SPRY_ASSIGN_OR_RETURN(const std::vector<GenerationRequest> requests, MakeRequests(flags, model));
  Latencies latencies;
  SPRY_RETURN_IF_ERROR(Measure(flags, model, requests, latencies));
  SPRY_RETURN_IF_ERROR(WriteStdout(ToText(latencies)));
  if (!flags.output_json.empty()) {
    SPRY_RETURN_IF_ERROR(WriteFile(flags.output_json, ToJson(latencies)));
  }
  if (!flags.profile.empty()) SPRY_RETURN_IF_ERROR(ProfileOnce(flags, model, requests));
  return kExitDone;
}

}  // namespace

Command AddBenchLatency(CLI::App& parent) {
  const auto flags = std::make_shared<LatencyFlags>();
  CLI::App& parser =
      *parent.add_subcommand("latency", "Time of one batch from submission to last token");
  parser.footer(
      "The same random prompts in every iteration, temperature 1, end ids ignored. Prefix caching\n"
      "is on by default, so iterations after the first find most of the prompt: hits are printed.\n"
      "\nExample:\n"
      "  spry bench latency ./opt-125m --load-format dummy --batch-size 8 --output-json out.json");
  const char* group = "Benchmark";
  parser.add_option("--input-len", flags->input_len, "Tokens of a prompt [32]")
      ->check(Between(int64_t{1}, kMaxBenchLength))
      ->type_name("INT")
      ->group(group);
  parser.add_option("--output-len", flags->output_len, "Tokens to generate [128]")
      ->check(Between(int64_t{1}, kMaxBenchLength))
      ->type_name("INT")
      ->group(group);
  parser.add_option("--batch-size", flags->batch_size, "Requests in the batch [8]")
      ->check(Between(int64_t{1}, kMaxBenchRequests))
      ->type_name("INT")
      ->group(group);
  parser.add_option("--num-iters-warmup", flags->warmup_iters, "Iterations not timed [10]")
      ->check(Between(int64_t{0}, kMaxBenchIterations))
      ->type_name("INT")
      ->group(group);
  parser.add_option("--num-iters", flags->iters, "Iterations timed [30]")
      ->check(Between(int64_t{1}, kMaxBenchIterations))
      ->type_name("INT")
      ->group(group);
  parser
      .add_flag(
          "--tail-control", flags->tail_control,
          "After each decode step time as much plain arithmetic and as long a read of memory, on "
          "as many threads, to tell a noisy machine from a noisy engine")
      ->group(group);
  parser.add_option("--output-json", flags->output_json, "Write the results there, vLLM's keys")
      ->type_name("FILE")
      ->group(group);
  parser
      .add_option("--profile", flags->profile,
                  "Run the batch once more, print the time of each kind of op and its share of "
                  "the bound, and write when each op ran: a trace for Perfetto (CPU)")
      ->type_name("FILE")
      ->group(group);
  AddModelFlags(parser, flags->model);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags] { return RunLatency(*flags); }};
}

}  // namespace spry
