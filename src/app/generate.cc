// spry generate: prompts in, text out. Requests run together; a failed one is reported alone.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "app/command.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/interrupt.h"
#include "app/load_model.h"
#include "app/prompt_input.h"
#include "app/request_output.h"
#include "app/sampling_fields.h"
#include "app/write_text.h"
#include "engine/choices.h"
#include "text/chat_template.h"

namespace spry {
namespace {

struct GenerateFlags {
  DeviceFlags device;
  ModelFlags model;
  std::vector<PromptSource> prompts;
  SamplingFields sampling;
  bool json = false;
};

void ReportPrompt(const std::string& where, const std::string& message) {
  Complain(fmt::format("{}: {}", where, message));
}

class Generate {
 public:
  // Entries that are errors have been reported.
  Generate(const GenerateFlags& flags, std::vector<PromptEntry> prompts, LoadedModel model)
      : flags_(flags), prompts_(std::move(prompts)), model_(std::move(model)) {}

  Result<int> Run() {
    for (size_t i = 0; i < prompts_.size(); ++i) {
      if (prompts_[i].line.ok()) {
        Submit(static_cast<int>(i));
      } else {
        failed_ = true;
      }
    }
    while (!model_.engine->idle()) {
      if (Interrupted()) return Stop();
      SPRY_ASSIGN_OR_RETURN(const std::span<const TokenEvent> events, model_.engine->Step());
      for (const TokenEvent& event : events) SPRY_RETURN_IF_ERROR(Take(event));
    }
    SPRY_RETURN_IF_ERROR(PrintReady());
    return failed_ ? kExitFailed : kExitDone;
  }

 private:
  // One answer.
  struct Slot {
    std::string where;
    std::string heading;  // among several answers
    std::unique_ptr<RequestOutput> output;
  };

  void Report(const std::string& where, const std::string& message) {
    failed_ = true;
    ReportPrompt(where, message);
  }

  // Hands a prompt to the engine, a slot for each of its answers.
  void Submit(int index) {
    PromptEntry& entry = prompts_[index];
    const Result<GenerationRequest> request = MakeRequest(entry);
    if (!request.ok()) return Report(entry.where, request.status().message());
    const Result<std::vector<RequestId>> ids = SubmitChoices(*model_.engine, *request);
    if (!ids.ok()) return Report(entry.where, ids.status().message());
    for (size_t i = 0; i < ids->size(); ++i) {
      const int choice = static_cast<int>(i);
      index_of_[(*ids)[i]] = static_cast<int>(slots_.size());
      slots_.push_back({.where = entry.where,
                        .heading = ids->size() == 1
                                       ? entry.where
                                       : fmt::format("{}, answer {}", entry.where, i + 1)});
      slots_.back().output = std::make_unique<RequestOutput>(
          RequestOutput::Options{.index = index,
                                 .choice = choice,
                                 .tokenizer = model_.tokenizer.get(),
                                 .prompt_tokens = static_cast<int>(request->prompt.size()),
                                 .sampling = MakeChoice(*request, choice).sampling});
    }
  }

  Result<GenerationRequest> MakeRequest(PromptEntry& entry) const {
    PromptLine& line = *entry.line;
    GenerationRequest request;
    const SamplingDefaults& defaults = model_.config.sampling_defaults;
    request.sampling = line.chat ? DefaultChatSampling(defaults) : DefaultSampling(defaults);
    request.sampling.seed = flags_.model.seed;
    const Tokenizer* tokenizer = model_.tokenizer.get();
    SPRY_RETURN_IF_ERROR(flags_.sampling.ApplyTo(request.sampling, tokenizer));
    SPRY_RETURN_IF_ERROR(line.sampling.ApplyTo(request.sampling, tokenizer));
    request.priority = line.priority.value_or(0);
    if (!request.sampling.stop.empty() && tokenizer == nullptr) {
      return InvalidArgument(
          "stop needs the text of tokens, and the model has no tokenizer; use stop_token_ids");
    }
    if (!line.text) {
      request.prompt = std::move(line.token_ids);
      return request;
    }
    if (model_.tokenizer == nullptr) {
      return InvalidArgument("the model has no tokenizer; give prompt_token_ids with --input");
    }
    std::string text = *std::move(line.text);
    if (line.chat) {
      SPRY_ASSIGN_OR_RETURN(text, RenderChat(text));
    }
    // A chat template writes its special tokens itself.
    request.prompt = model_.tokenizer->Encode(text, /*add_special_tokens=*/!line.chat);
    return request;
  }

  // The prompt for one message of a user.
  Result<std::string> RenderChat(const std::string& message) const {
    if (!model_.chat_template) {
      return InvalidArgument("the model has no chat template; give the whole prompt with --prompt");
    }
    SPRY_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Create(*model_.chat_template));
    return chat.Render({.messages = UserMessage(message), .add_generation_prompt = true});
  }

  bool streams() const { return prompts_.size() == 1 && slots_.size() == 1 && !flags_.json; }

  Status Take(const TokenEvent& event) {
    const auto found = index_of_.find(event.request);
    if (found == index_of_.end()) return {};  // a stop string ended it in this step
    Slot& slot = slots_[found->second];
    const std::string_view piece = slot.output->Take(event);
    if (streams() && !piece.empty()) SPRY_RETURN_IF_ERROR(WriteStdout(piece));
    if (!slot.output->finished()) return {};
    if (event.finish == FinishReason::kNone) model_.engine->Cancel(event.request);
    if (event.finish == FinishReason::kError) {
      Report(slot.where, fmt::format("{}; the request was stopped", FaultText(event.fault)));
    }
    index_of_.erase(found);
    return PrintReady();
  }

  // Prints what has ended, in the order of the prompts.
  Status PrintReady() {
    for (; next_ < slots_.size(); ++next_) {
      const Slot& slot = slots_[next_];
      if (!slot.output->finished()) return {};
      if (flags_.json) {
        SPRY_RETURN_IF_ERROR(WriteStdout(slot.output->ToJson() + "\n"));
      } else if (streams()) {
        SPRY_RETURN_IF_ERROR(WriteStdout("\n"));
      } else {
        SPRY_RETURN_IF_ERROR(
            WriteStdout(fmt::format("== {}\n{}\n", slot.heading, slot.output->text())));
      }
    }
    return {};
  }

  Result<int> Stop() {
    for (const auto& [id, index] : index_of_) model_.engine->Cancel(id);
    if (streams()) SPRY_RETURN_IF_ERROR(WriteStdout("\n"));
    return kExitInterrupted;
  }

  const GenerateFlags& flags_;
  std::vector<PromptEntry> prompts_;
  LoadedModel model_;
  std::vector<Slot> slots_;
  std::unordered_map<RequestId, int> index_of_;  // of the requests that have not ended
  size_t next_ = 0;                              // to be printed
  bool failed_ = false;
};

// What can be told of a request without the model; its generation_config has none of the fields
// that limit one another.
Status CheckFields(const SamplingFields& flags, const PromptLine& line) {
  SamplingParams params = line.chat ? DefaultChatSampling({}) : DefaultSampling({});
  flags.Overlay(params);
  line.sampling.Overlay(params);
  return CheckRanges(params);
}

// Makes errors of the entries that cannot be requests, and reports them. True where one is left.
bool CheckEntries(const SamplingFields& flags, std::vector<PromptEntry>& entries) {
  bool any = false;
  for (PromptEntry& entry : entries) {
    const Status status =
        entry.line.ok() ? CheckFields(flags, *entry.line) : Status(entry.line.status());
    any = any || status.ok();
    if (status.ok()) continue;
    ReportPrompt(entry.where, status.message());
    entry.line = status;
  }
  return any;
}

Result<int> RunGenerate(const GenerateFlags& flags) {
  SPRY_ASSIGN_OR_RETURN(std::vector<PromptEntry> prompts, GatherPrompts(flags.prompts));
  // A mistake is not worth the time of loading.
  if (!CheckEntries(flags.sampling, prompts)) return kExitFailed;
  SPRY_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(flags.device, flags.model));
  CatchInterrupt(SecondInterrupt::kEndsProcess);
  return Generate(flags, std::move(prompts), std::move(model)).Run();
}

// Each puts itself behind those before it on the command line.
void AddPromptFlag(CLI::App& parser, const char* name, const char* type, const char* help,
                   PromptSource::Kind kind, std::vector<PromptSource>& sources) {
  const auto add = [&sources, kind](const std::string& value) {
    sources.push_back({.kind = kind, .value = value});
  };
  parser.add_option_function<std::string>(name, add, help)
      ->trigger_on_parse()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name(type)
      ->group(kPromptGroup);
}

void AddPromptFlags(CLI::App& parser, std::vector<PromptSource>& sources) {
  using Kind = PromptSource::Kind;
  AddPromptFlag(parser, "--prompt", "TEXT", "Text to go on from; this and the next may be repeated",
                Kind::kPrompt, sources);
  AddPromptFlag(parser, "--chat", "TEXT", "Message to answer, put into the model's chat template",
                Kind::kChat, sources);
  AddPromptFlag(parser, "--prompt-file", "FILE",
                "File that holds one prompt (a last line end is dropped)", Kind::kFile, sources);
  AddPromptFlag(parser, "--input", "F.jsonl",
                "JSON lines: prompt or prompt_token_ids, and any sampling field", Kind::kLines,
                sources);
}

void AddOutputFlags(CLI::App& parser, GenerateFlags& flags) {
  const char* group = "Output";
  parser.add_option("-n,--n", flags.sampling.n, "Answers to each prompt, up to 128 [1]")
      ->check(ForSampling<int>(&SamplingParams::n))
      ->group(group);
  CLI::Option* json =
      parser
          .add_flag("--json", flags.json,
                    "Print a JSON object a line: index, choice, prompt_tokens, cached_tokens, "
                    "token_ids, text, finish_reason, stop_reason, logprobs, prompt_logprobs")
          ->group(group);
  parser
      .add_option("--logprobs", flags.sampling.logprobs,
                  "Report the log-probabilities of the token and of that many others")
      ->check(ForSampling<int>(&SamplingParams::logprobs))
      ->needs(json)
      ->group(group);
  parser
      .add_option("--prompt-logprobs", flags.sampling.prompt_logprobs,
                  "The same of each token of the prompt; --max-tokens 0 scores it alone")
      ->check(ForSampling<int>(&SamplingParams::prompt_logprobs))
      ->needs(json)
      ->group(group);
}

}  // namespace

Command AddGenerate(CLI::App& parent) {
  const auto flags = std::make_shared<GenerateFlags>();
  CLI::App& parser = *parent.add_subcommand("generate", "Generate text from prompts");
  parser.footer(
      "Sampling starts from the model's generation_config.json; flags go over it, and the fields\n"
      "of an --input line over both. Several prompts run together and are printed in order, each\n"
      "answer below a line that names its prompt.\n\n"
      "Examples:\n"
      "  spry generate SmolLM2-135M-Instruct.Q4_1.gguf --prompt 'The capital of France is'\n"
      "  echo 'Once upon a time' | spry generate ./SmolLM2-135M --temperature 0 --max-tokens 64\n"
      "  spry generate SmolLM2-135M-Instruct.Q4_1.gguf --chat 'Why is the sky blue?'\n"
      "  spry generate ./SmolLM2-135M --input prompts.jsonl --json\n"
      "    (a line: {\"prompt\": \"Hello\", \"max_tokens\": 8, \"temperature\": 0})");
  AddPromptFlags(parser, flags->prompts);
  AddOutputFlags(parser, *flags);
  AddModelFlags(parser, flags->model);
  AddSamplingFlags(parser, flags->sampling);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags] { return RunGenerate(*flags); }};
}

}  // namespace spry
