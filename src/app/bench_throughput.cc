// spry bench throughput: many requests at once, from the first submission to the last token.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <vector>

#include "app/bench_run.h"
#include "app/command.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/load_model.h"
#include "app/read_text.h"
#include "app/write_text.h"
#include "server/why_not_json.h"

namespace spry {
namespace {

namespace json = boost::json;

constexpr int kDefaultPrompts = 1000;

struct ThroughputFlags {
  DeviceFlags device;
  ModelFlags model;
  int num_prompts = 0;  // 0: as many as the file has, or kDefaultPrompts
  int input_len = 0;
  int output_len = 0;
  std::string lengths;
  std::string output_json;
};

struct Length {
  int input = 0;
  int output = 0;
};

Result<std::vector<int>> ReadList(const std::string& path, const json::value& file,
                                  const char* key) {
  const json::object* object = file.if_object();
  const json::value* list = object == nullptr ? nullptr : object->if_contains(key);
  if (list == nullptr || !list->is_array()) {
    return InvalidArgument(
        fmt::format("{}: expected {{\"in\": [...], \"out\": [...]}}; there is "
                    "no list \"{}\"",
                    path, key));
  }
  std::vector<int> lengths;
  for (const json::value& value : list->get_array()) {
    const int64_t* length = value.if_int64();
    if (length == nullptr || *length < 1 || *length > kMaxBenchLength) {
      return InvalidArgument(fmt::format("{}: \"{}\"[{}] is {}; it must be an integer from 1 to {}",
                                         path, key, lengths.size(), json::serialize(value),
                                         kMaxBenchLength));
    }
    lengths.push_back(static_cast<int>(*length));
  }
  return lengths;
}

Result<std::vector<Length>> ReadLengths(const std::string& path) {
  SPRY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  const Result<json::value> parsed = ParseJson(text);
  if (!parsed.ok()) return InvalidArgument(path + ": " + parsed.status().message());
  const json::value& file = *parsed;
  SPRY_ASSIGN_OR_RETURN(const std::vector<int> inputs, ReadList(path, file, "in"));
  SPRY_ASSIGN_OR_RETURN(const std::vector<int> outputs, ReadList(path, file, "out"));
  if (inputs.size() != outputs.size() || inputs.empty()) {
    return InvalidArgument(
        fmt::format("{}: \"in\" has {} lengths and \"out\" {}; they must be as "
                    "many, and at least one",
                    path, inputs.size(), outputs.size()));
  }
  std::vector<Length> lengths;
  for (size_t i = 0; i < inputs.size(); ++i) lengths.push_back({inputs[i], outputs[i]});
  return lengths;
}

Result<std::vector<Length>> LengthsOf(const ThroughputFlags& flags) {
  if (flags.lengths.empty()) {
    if (flags.input_len == 0 || flags.output_len == 0) {
      return InvalidArgument("give --input-len and --output-len, or --lengths FILE");
    }
    const int count = flags.num_prompts > 0 ? flags.num_prompts : kDefaultPrompts;
    return std::vector<Length>(count, {flags.input_len, flags.output_len});
  }
  SPRY_ASSIGN_OR_RETURN(std::vector<Length> lengths, ReadLengths(flags.lengths));
  if (flags.num_prompts > static_cast<int>(lengths.size())) {
    return InvalidArgument(fmt::format("--num-prompts is {} but {} has {} lengths",
                                       flags.num_prompts, flags.lengths, lengths.size()));
  }
  if (flags.num_prompts > 0) lengths.resize(flags.num_prompts);
  return lengths;
}

Status CheckLengths(const std::vector<Length>& lengths, const Engine& engine) {
  int64_t longest = 0, total = 0;
  for (const Length& length : lengths) {
    longest = std::max<int64_t>(longest, length.input);
    total += length.input;
  }
  return CheckPrompts(engine, longest, total);
}

// One short request, so that first-time costs are not measured.
Status Warm(const LoadedModel& model, std::mt19937_64& random, int low, int high) {
  constexpr int kTokens = 2;
  const GenerationRequest request = BenchRequest(RandomPrompt(random, kTokens, low, high), kTokens);
  return RunToEnd(*model.engine, model.tokenizer.get(), {&request, 1}, nullptr).status();
}

Result<int> RunThroughput(const ThroughputFlags& flags) {
  SPRY_RETURN_IF_ERROR(CheckWritable(flags.output_json));
  SPRY_ASSIGN_OR_RETURN(const std::vector<Length> lengths, LengthsOf(flags));
  SPRY_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(flags.device, flags.model));

  SPRY_RETURN_IF_ERROR(CheckLengths(lengths, *model.engine));

  constexpr int kFirstOrdinaryId = 10;  // below lie special tokens in most vocabularies
  const int high = RandomIdsEnd(model.config.vocab_size);
  const int low = high > kFirstOrdinaryId ? kFirstOrdinaryId : 0;
  std::mt19937_64 random(flags.model.engine.seed);
  SPRY_RETURN_IF_ERROR(Warm(model, random, low, high));
  std::vector<GenerationRequest> requests;
  for (const Length& length : lengths) {
    requests.push_back(BenchRequest(RandomPrompt(random, length.input, low, high), length.output));
  }
  SPRY_ASSIGN_OR_RETURN(const RunTotals totals,
                        RunToEnd(*model.engine, model.tokenizer.get(), requests, nullptr));

  const double requests_per_second = static_cast<double>(requests.size()) / totals.seconds;
  const int64_t total_tokens = totals.prompt_tokens + totals.output_tokens;
  const double tokens_per_second = static_cast<double>(total_tokens) / totals.seconds;
  SPRY_RETURN_IF_ERROR(WriteStdout(
      fmt::format("Throughput: {:.2f} requests/s, {:.2f} total tokens/s, {:.2f} output tokens/s\n"
                  "Total num prompt tokens:  {}\nTotal num output tokens:  {}\n"
                  "Prefix cache: {} of {} prompt tokens hit ({:.1f}%)\n",
                  requests_per_second, tokens_per_second,
                  static_cast<double>(totals.output_tokens) / totals.seconds, totals.prompt_tokens,
                  totals.output_tokens, totals.cached_tokens, totals.prompt_tokens,
                  100.0 * totals.hit_rate())));
  if (flags.output_json.empty()) return kExitDone;
  const json::object results = {{"elapsed_time", totals.seconds},
                                {"num_requests", requests.size()},
                                {"total_num_tokens", total_tokens},
                                {"requests_per_second", requests_per_second},
                                {"tokens_per_second", tokens_per_second},
                                {"spry",
                                 {{"prompt_tokens", totals.prompt_tokens},
                                  {"cached_tokens", totals.cached_tokens},
                                  {"output_tokens", totals.output_tokens}}}};
  SPRY_RETURN_IF_ERROR(WriteFile(flags.output_json, json::serialize(results) + "\n"));
  return kExitDone;
}

}  // namespace

Command AddBenchThroughput(CLI::App& parent) {
  const auto flags = std::make_shared<ThroughputFlags>();
  CLI::App& parser = *parent.add_subcommand("throughput", "Requests and tokens per second");
  parser.footer(
      "All requests are submitted at once: random prompts, temperature 1, end ids ignored.\n\n"
      "Examples:\n"
      "  spry bench throughput ./llama --num-prompts 64 --input-len 512 --output-len 128\n"
      "  spry bench throughput ./llama --lengths lengths.json\n"
      "    (a file of {\"in\": [448, 404], \"out\": [12, 90]})");
  const char* group = "Benchmark";
  CLI::Option* lengths =
      parser.add_option("--lengths", flags->lengths, "JSON file with the length of each request")
          ->type_name("FILE")
          ->group(group);
  parser
      .add_option("--num-prompts", flags->num_prompts,
                  "Number of requests [1000, or all of --lengths]")
      ->check(Between(int64_t{1}, kMaxBenchRequests))
      ->type_name("INT")
      ->group(group);
  parser.add_option("--input-len", flags->input_len, "Tokens of each prompt")
      ->check(Between(int64_t{1}, kMaxBenchLength))
      ->type_name("INT")
      ->excludes(lengths)
      ->group(group);
  parser.add_option("--output-len", flags->output_len, "Tokens to generate for each")
      ->check(Between(int64_t{1}, kMaxBenchLength))
      ->type_name("INT")
      ->excludes(lengths)
      ->group(group);
  parser.add_option("--output-json", flags->output_json, "Write the results there, vLLM's keys")
      ->type_name("FILE")
      ->group(group);
  AddModelFlags(parser, flags->model);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags] { return RunThroughput(*flags); }};
}

}  // namespace spry
