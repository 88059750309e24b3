// spry bench perplexity: how well a model predicts a text (app/perplexity.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <string>
#include <vector>

#include "app/command.h"
#include "app/flags.h"
#include "app/load_model.h"
#include "app/perplexity.h"
#include "app/read_text.h"
#include "app/write_text.h"

namespace spry {
namespace {

namespace json = boost::json;

constexpr int64_t kDefaultWindow = 512;  // llama-perplexity's

struct PerplexityFlags {
  DeviceFlags device;
  ModelFlags model;
  std::string file;
  std::string json;
};

Result<int> RunPerplexity(const PerplexityFlags& flags) {
  SPRY_RETURN_IF_ERROR(CheckWritable(flags.json));
  SPRY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.file));
  SPRY_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(flags.device, flags.model));
  int64_t window = model.engine->memory_plan().max_model_len;
  const bool is_chosen = flags.model.engine.runner.memory.max_model_len != 0;
  if (!is_chosen) window = std::min(window, kDefaultWindow);
  if (model.tokenizer == nullptr) return InvalidArgument("the model has no tokenizer");

  constexpr bool kSpecial = true;
  const std::vector<TokenId> tokens = model.tokenizer->Encode(text, kSpecial);
  const std::vector<TokenId> added = model.tokenizer->Encode("", kSpecial);
  const std::optional<TokenId> bos = added.empty() ? std::nullopt : std::optional(added.front());
  SPRY_ASSIGN_OR_RETURN(const Perplexity result,
                        MeasurePerplexity(*model.engine, tokens, window, bos));

  SPRY_RETURN_IF_ERROR(
      WriteStdout(fmt::format("{} tokens, {} windows of {}, {} tokens scored in {:.2f} s\n"
                              "NLL: {:.5f}\nPerplexity: {:.4f} +- {:.4f}\n",
                              tokens.size(), result.windows, window, result.scored_tokens,
                              result.seconds, result.nll, result.value, result.error)));
  if (flags.json.empty()) return kExitDone;
  const json::object object = {{"tokens", tokens.size()},   {"window", window},
                               {"windows", result.windows}, {"scored_tokens", result.scored_tokens},
                               {"nll", result.nll},         {"perplexity", result.value},
                               {"error", result.error},     {"seconds", result.seconds}};
  SPRY_RETURN_IF_ERROR(WriteFile(flags.json, json::serialize(object) + "\n"));
  return kExitDone;
}

}  // namespace

Command AddBenchPerplexity(CLI::App& parent) {
  const auto flags = std::make_shared<PerplexityFlags>();
  CLI::App& parser = *parent.add_subcommand("perplexity", "How well a model predicts a text");
  parser.footer(
      "The text is cut into windows of --max-model-len tokens [512, or the model's]; in each, the\n"
      "second half is scored, as llama-perplexity does.\n\n"
      "Example:\n  spry bench perplexity model.gguf --file wiki.test.raw --max-model-len 512");
  const char* group = "Benchmark";
  parser.add_option("--file", flags->file, "The text")->required()->type_name("FILE")->group(group);
  parser.add_option("--json", flags->json, "Write the results there")
      ->type_name("FILE")
      ->group(group);
  AddModelFlags(parser, flags->model);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags] { return RunPerplexity(*flags); }};
}

}  // namespace spry
