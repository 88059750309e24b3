// spry chat: a dialogue at the terminal. Each answer is a request of its own whose prompt is the
// whole dialogue; the prefix cache keeps what was said before.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "app/command.h"
#include "app/dialogue.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/interrupt.h"
#include "app/line_editor.h"
#include "app/load_model.h"
#include "app/sampling_fields.h"
#include "app/write_text.h"
#include "engine/choice_text.h"
#include "text/chat_template.h"

namespace spry {
namespace {

constexpr char kCommands[] =
    "/clear         forget what was said\n"
    "/system TEXT   instructions for the model from now on; without TEXT none\n"
    "/save FILE     write the dialogue as JSON\n"
    "/exit          leave, as Ctrl-D does\n"
    "/help          this list\n"
    "Ctrl-C stops an answer; what is there of it counts as said. A message that begins with a "
    "slash\n"
    "needs a space before it.\n";

struct ChatFlags {
  DeviceFlags device;
  ModelFlags model;
  SamplingFields sampling;
  std::string system;
};

class Chat {
 public:
  Chat(const std::string& system, SamplingParams sampling, LoadedModel model,
       ChatTemplate chat_template)
      : model_(std::move(model)),
        template_(std::move(chat_template)),
        editor_("> "),
        sampling_(std::move(sampling)) {
    dialogue_.SetSystem(system);
  }

  Result<int> Run() {
    if (editor_.at_terminal()) WriteStderr("/help lists the commands\n");
    std::string line;
    while (!left_) {
      ForgetInterrupt();
      SPRY_ASSIGN_OR_RETURN(const LineEditor::Outcome outcome, editor_.Read(line));
      if (outcome == LineEditor::Outcome::kEnd) break;
      if (outcome == LineEditor::Outcome::kInterrupted) {
        if (!editor_.at_terminal()) return kExitInterrupted;
        WriteStderr("\n(Ctrl-D or /exit leaves)\n");
        continue;
      }
      if (line.ends_with('\r')) line.pop_back();  // a file from another system
      SPRY_RETURN_IF_ERROR(line.starts_with('/') ? Obey(line) : Say(std::move(line)));
      line.clear();
    }
    if (editor_.at_terminal() && !left_) SPRY_RETURN_IF_ERROR(WriteStdout("\n"));
    return Code();
  }

 private:
  // A person saw each complaint; a script asks the exit code.
  int Code() const { return failed_ && !editor_.at_terminal() ? kExitFailed : kExitDone; }

  void Complain(const std::string& message) {
    failed_ = true;
    spry::Complain(message);
  }

  // To a person; a script wants answers alone.
  void Confirm(const std::string& what) {
    if (editor_.at_terminal()) WriteStderr(fmt::format("({})\n", what));
  }

  Status Obey(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    const size_t begin = line.find_first_not_of(' ', space);
    const std::string argument = begin == std::string::npos ? "" : line.substr(begin);
    if (command == "/system") {
      dialogue_.SetSystem(argument);
      Confirm(argument.empty() ? "no instructions from now on" : "instructions from now on");
    } else if (command == "/save") {
      Save(argument);
    } else if (command != "/help" && command != "/clear" && command != "/exit") {
      Complain(fmt::format("there is no command {}; /help lists them", command));
    } else if (!argument.empty()) {
      Complain(fmt::format("{} takes nothing behind it, and was not done", command));
    } else if (command == "/help") {
      return WriteStdout(kCommands);
    } else if (command == "/clear") {
      dialogue_.Clear();
      Confirm("forgotten");
    } else {
      left_ = true;
    }
    return {};
  }

  void Save(const std::string& path) {
    if (path.empty()) return Complain("/save needs the name of a file");
    const Status saved = WriteFile(path, dialogue_.ToJson());
    saved.ok() ? Confirm("saved to " + path) : Complain(saved.message());
  }

  // A message of the user, and the answer. What cannot be answered is not kept.
  Status Say(std::string message) {
    if (message.find_first_not_of(" \t\r") == std::string::npos) return {};
    dialogue_.AddUser(std::move(message));
    const Result<RequestId> request = Ask();
    if (!request.ok()) {
      dialogue_.DropLast();
      Complain(request.status().message());
      return {};
    }
    return Answer(*request);
  }

  Result<RequestId> Ask() {
    SPRY_ASSIGN_OR_RETURN(
        const std::string text,
        template_.Render({.messages = dialogue_.Messages(), .add_generation_prompt = true}));
    // The template has written its special tokens itself.
    const Result<RequestId> request = model_.engine->Submit(
        {.prompt = model_.tokenizer->Encode(text, /*add_special_tokens=*/false),
         .sampling = sampling_});
    if (request.ok() || dialogue_.num_messages() == 1) return request;
    return InvalidArgument(request.status().message() + "; /clear forgets what was said");
  }

  Status Answer(RequestId request) {
    ChoiceText answer(MakeChoiceTextOptions(model_.tokenizer.get(), sampling_));
    RowFault fault = RowFault::kNone;
    while (!answer.finished() && !Interrupted()) {
      SPRY_ASSIGN_OR_RETURN(const std::span<const TokenEvent> events, model_.engine->Step());
      for (const TokenEvent& event : events) {
        fault = event.fault;
        const std::optional<TokenId> token =
            event.has_token ? std::optional(event.token) : std::nullopt;
        SPRY_RETURN_IF_ERROR(WriteStdout(answer.Take(token, event.finish)));
      }
    }
    model_.engine->Cancel(request);  // no more than a word to one that has ended
    SPRY_RETURN_IF_ERROR(WriteStdout("\n"));
    if (!answer.finished()) Confirm("stopped; what is there counts as said");
    if (answer.finish() == FinishReason::kError) {
      dialogue_.DropLast();
      Complain(fmt::format("{}; the answer was stopped", FaultText(fault)));
      return {};
    }
    if (answer.finish() == FinishReason::kLength) {
      WriteStderr("(the answer was cut at its length limit)\n");
    }
    dialogue_.AddAssistant(answer.text());
    return {};
  }

  LoadedModel model_;
  ChatTemplate template_;
  LineEditor editor_;
  Dialogue dialogue_;
  SamplingParams sampling_;
  bool left_ = false;
  bool failed_ = false;
};

Result<int> RunChat(const ChatFlags& flags) {
  SamplingParams asked = DefaultChatSampling({});
  flags.sampling.Overlay(asked);
  SPRY_RETURN_IF_ERROR(CheckRanges(asked));  // before the model is loaded
  SPRY_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(flags.device, flags.model));
  if (model.tokenizer == nullptr || !model.chat_template) {
    return InvalidArgument(fmt::format("{}: it has no {}, which a chat needs; try spry generate",
                                       flags.model.model,
                                       model.tokenizer == nullptr ? "tokenizer" : "chat template"));
  }
  SPRY_ASSIGN_OR_RETURN(ChatTemplate chat_template, ChatTemplate::Create(*model.chat_template));
  SamplingParams sampling = DefaultChatSampling(model.config.sampling_defaults);
  sampling.seed = flags.model.seed;
  SPRY_RETURN_IF_ERROR(flags.sampling.ApplyTo(sampling, model.tokenizer.get()));
  CatchInterrupt(SecondInterrupt::kIsCaught);
  return Chat(flags.system, std::move(sampling), std::move(model), std::move(chat_template)).Run();
}

}  // namespace

Command AddChat(CLI::App& parent) {
  const auto flags = std::make_shared<ChatFlags>();
  CLI::App& parser = *parent.add_subcommand("chat", "Talk with a model at the terminal");
  parser.footer(
      std::string("While it runs:\n") + kCommands +
      "Messages may also come from a pipe, one a line; then the exit code is 1 if anything\n"
      "went wrong.\n\n"
      "Example:\n"
      "  spry chat SmolLM2-135M-Instruct.Q4_1.gguf --system 'Answer in one sentence.'");
  parser.add_option("--system", flags->system, "Instructions for the model")
      ->type_name("TEXT")
      ->group(kPromptGroup);
  AddModelFlags(parser, flags->model);
  AddSamplingFlags(parser, flags->sampling);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags] { return RunChat(*flags); }};
}

}  // namespace spry
