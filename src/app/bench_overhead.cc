// spry bench overhead: what a steady decode step costs the host. On the null device nothing is
// computed, so all that is left is scheduling, bookkeeping and the step protocol; on a card the
// launches come on top, and are shown beside bare ones. Requests neither join nor leave while it is
// measured; blocks grow.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/command.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/overhead_run.h"
#include "app/write_text.h"

namespace spry {
namespace {

namespace json = boost::json;

constexpr int kMaxSteps = 100'000;
constexpr std::array<Choice<DeviceChoice>, 2> kOverheadDevices = {
    {{"null", DeviceChoice::kNull}, {"cuda", DeviceChoice::kCuda}}};

struct OverheadFlags {
  OverheadOptions options;
  std::vector<int> rows = {1, 8, 64, 256, 1024};
  std::string json;

  bool on_card() const { return options.device.device == DeviceChoice::kCuda; }
};

json::object ToJson(const Overhead& result) {
  json::object entry = {{"rows", result.rows},
                        {"host_ns_per_step", {{"p50", result.host_p50}, {"p99", result.host_p99}}},
                        {"heap_allocations_per_step", result.allocations}};
  if (!result.launches.has_value()) return entry;
  const LaunchCosts& costs = *result.launches;
  entry["step_ns"] = {{"p50", result.step_p50}};
  entry["launches_per_step"] = {
      {"graphs", costs.graphs}, {"graph_kernels", costs.graph_kernels}, {"kernels", costs.kernels}};
  entry["bare_graphs_ns"] = costs.bare_graphs_ns;
  entry["bare_kernel_ns"] = costs.bare_kernel_ns;
  entry["attention_call"] = {{"kernels", costs.attention_kernels}, {"ns", costs.attention_ns}};
  return entry;
}

std::string NullHeader() {
  return fmt::format("{:>6} {:>12} {:>12} {:>14} {:>14} {:>16}\n", "rows", "p50 us", "p99 us",
                     "first 10% p50", "last 10% p50", "allocations/step");
}

std::string NullLine(const Overhead& r) {
  return fmt::format("{:>6} {:>12.2f} {:>12.2f} {:>14.2f} {:>14.2f} {:>16}\n", r.rows,
                     r.host_p50 / 1e3, r.host_p99 / 1e3, r.host_first_p50 / 1e3,
                     r.host_last_p50 / 1e3, r.allocations);
}

std::string CardHeader() {
  return fmt::format("{:>6} {:>9} {:>9} {:>9} {:>8} {:>8} {:>9} {:>8} {:>9} {:>9} {:>12}\n", "rows",
                     "step us", "host p50", "host p99", "graphs", "(kernels", "launched)",
                     "bare us", "null us", "above us", "allocations");
}

// `null_host_p50`: of the same engine on the null device. What is above both it and bare launches
// is the device's own code.
std::string CardLine(const Overhead& r, double null_host_p50) {
  const LaunchCosts& costs = *r.launches;
  const double bare_ns = costs.bare_graphs_ns + costs.kernels * costs.bare_kernel_ns;
  return fmt::format(
      "{:>6} {:>9.2f} {:>9.2f} {:>9.2f} {:>8} {:>8} {:>9} {:>8.2f} {:>9.2f} {:>9.2f} {:>12}\n",
      r.rows, r.step_p50 / 1e3, r.host_p50 / 1e3, r.host_p99 / 1e3, costs.graphs,
      costs.graph_kernels, costs.kernels, bare_ns / 1e3, null_host_p50 / 1e3,
      (r.host_p50 - null_host_p50 - bare_ns) / 1e3, r.allocations);
}

std::string AttentionLine(const LaunchCosts& costs) {
  const double bare_ns = costs.attention_kernels * costs.bare_kernel_ns;
  return fmt::format(
      "       one attention call outside a graph: {:.2f} us for {} launch{}, {:.2f} us above bare "
      "ones of {:.2f} us\n",
      costs.attention_ns / 1e3, costs.attention_kernels, costs.attention_kernels == 1 ? "" : "es",
      (costs.attention_ns - bare_ns) / 1e3, costs.bare_kernel_ns / 1e3);
}

Result<std::string> Line(const OverheadFlags& flags, const Overhead& result) {
  if (!flags.on_card()) return NullLine(result);
  OverheadOptions null = flags.options;
  null.device = {.device = DeviceChoice::kNull};
  SPRY_ASSIGN_OR_RETURN(const Overhead on_null, MeasureOverhead(null, result.rows));
  return CardLine(result, on_null.host_p50) + AttentionLine(*result.launches);
}

Result<int> RunOverhead(const OverheadFlags& flags) {
  SPRY_RETURN_IF_ERROR(CheckWritable(flags.json));
  const OverheadOptions& options = flags.options;
  std::string header = fmt::format(
      "Host time of a decode step: opt-125m shape, {} device, prefix caching {}, run-ahead {}, "
      "{} steps\n{}",
      flags.on_card() ? "cuda" : "null", options.prefix_caching ? "on" : "off", options.run_ahead,
      options.steps, flags.on_card() ? CardHeader() : NullHeader());
  json::array results;
  for (const int rows : flags.rows) {
    SPRY_ASSIGN_OR_RETURN(const Overhead result, MeasureOverhead(options, rows));
    results.push_back(ToJson(result));
    SPRY_ASSIGN_OR_RETURN(const std::string line, Line(flags, result));
    SPRY_RETURN_IF_ERROR(WriteStdout(std::exchange(header, {}) + line));
  }
  if (!flags.json.empty()) {
    SPRY_RETURN_IF_ERROR(WriteFile(flags.json, json::serialize(results) + "\n"));
  }
  return kExitDone;
}

}  // namespace

Command AddBenchOverhead(CLI::App& parent) {
  const auto flags = std::make_shared<OverheadFlags>();
  OverheadOptions& options = flags->options;
  options.device.device = DeviceChoice::kNull;
  options.steps = 10'000;
  CLI::App& parser = *parent.add_subcommand("overhead", "Host time and heap allocations of a step");
  parser.footer(
      "No model is needed: opt-125m's shape is built in. The null device computes nothing; on a\n"
      "card a step's launches come on top, and are shown beside bare ones.\n\n"
      "Examples:\n  spry bench overhead --rows 8,256 --json overhead.json\n"
      "  spry bench overhead --device cuda --run-ahead 2 --steps 1000");
  const char* group = "Benchmark";
  AddChoice(parser, "--device", kOverheadDevices, options.device.device,
            "Where the steps are computed [null]")
      ->group(group);
  parser.add_option("--rows", flags->rows, "Sequences in a step [1,8,64,256,1024]")
      ->check(Between(1, kMostOverheadRows))
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LIST")
      ->group(group);
  parser.add_option("--steps", options.steps, "Steps to measure [10000]")
      ->check(Between(1, kMaxSteps))
      ->type_name("INT")
      ->group(group);
  parser
      .add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", options.prefix_caching,
                "Share the KV blocks of equal prefixes [on]")
      ->group(group);
  parser.add_option("--run-ahead", options.run_ahead, "Steps in flight, up to 64 [1]")
      ->check(Between(1, 64))
      ->type_name("INT")
      ->group(group);
  AddGraphFlags(parser, options.device.graphs);
  parser.add_option("--json", flags->json, "Write the results there, a list of objects")
      ->type_name("FILE")
      ->group(group);
  return {.parser = &parser, .run = [flags] { return RunOverhead(*flags); }};
}

}  // namespace spry
