#include "app/command_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>
#include <vector>

namespace spry {
namespace {

struct ForeignFlag {
  std::string_view flag;
  std::string_view instead;
};

constexpr std::string_view kPlainModel = "name the model without a flag";
constexpr std::string_view kNoHub = "nothing is fetched from a hub; name a folder or a .gguf file";
constexpr std::string_view kWholeModel = "--device cuda takes the whole model";
constexpr std::string_view kNotYet = "spry cannot do that yet; leave it out";
constexpr std::string_view kLeaveOut = "spry needs no such flag; leave it out";

// The README's table, and what people type from habit.
constexpr ForeignFlag kForeignFlags[] = {
    {"-m", kPlainModel},
    {"--model", kPlainModel},
    {"-hf", kNoHub},
    {"--hf-repo", kNoHub},
    {"-a", "use --served-model-name"},
    {"--alias", "use --served-model-name"},
    {"-c", "use --max-model-len"},
    {"--ctx-size", "use --max-model-len"},
    {"-np", "use --max-num-seqs"},
    {"--parallel", "use --max-num-seqs"},
    {"-b", "use --max-num-batched-tokens"},
    {"-ub", "use --max-num-batched-tokens"},
    {"-t", "use --threads"},
    {"-tb", "use --threads"},
    {"-dev", "use --device"},
    {"-ngl", kWholeModel},
    {"--n-gpu-layers", kWholeModel},
    {"-ctk", "use --kv-cache-dtype"},
    {"-ctv", "use --kv-cache-dtype"},
    {"--ssl-cert-file", "use --ssl-certfile"},
    {"--ssl-key-file", "use --ssl-keyfile"},
    {"--cors-origins", "use --allowed-origins"},
    {"--chat-template-file", "use --chat-template"},
    {"--no-cache-prompt", "use --no-enable-prefix-caching"},
    {"--enforce-eager", "use --graph-mode none"},
    {"-p", "use --prompt"},
    {"-n", "use --max-tokens"},
    {"--n-predict", "use --max-tokens"},
    {"--temp", "use --temperature"},
    {"--trust-remote-code", kLeaveOut},
    {"--jinja", kLeaveOut},
    {"-fa", kLeaveOut},
    {"--flash-attn", kLeaveOut},
    {"-cb", kLeaveOut},
    {"--metrics", kLeaveOut},
    {"--no-ui", kLeaveOut},
    {"--api-server-count", kLeaveOut},
    {"--no-mmap", kLeaveOut},
    {"--tensor-parallel-size", kNotYet},
    {"-tp", kNotYet},
    {"-ts", kNotYet},
    {"--enable-lora", kNotYet},
    {"--lora", kNotYet},
    {"--speculative-config", kNotYet},
    {"-md", kNotYet},
    {"--model-draft", kNotYet},
    {"--data-parallel-size", kNotYet},
    {"-dp", kNotYet},
    {"--pipeline-parallel-size", kNotYet},
    {"-pp", kNotYet},
    {"--mmproj", kNotYet},
    {"--embeddings", kNotYet},
    {"--reasoning-parser", kNotYet},
    {"--tool-call-parser", kNotYet},
    {"--enable-auto-tool-choice", kNotYet},
    {"--grammar", kNotYet},
};

std::string_view FlagOf(std::string_view argument) {
  return argument.substr(0, argument.find('='));
}

std::string Dashed(std::string_view argument) {
  std::string flag(FlagOf(argument));
  std::ranges::replace(flag, '_', '-');
  return flag;
}

// Empty: nothing is known of it.
std::string_view InsteadOf(std::string_view argument) {
  const auto* found = std::ranges::find(kForeignFlags, Dashed(argument), &ForeignFlag::flag);
  return found == std::end(kForeignFlags) ? std::string_view() : found->instead;
}

bool Has(const CLI::App& command, const std::string& flag) {
  return command.get_option_no_throw(flag) != nullptr;
}

// What to type in `command`, or empty. What it lacks as well is no advice.
std::string Advice(const CLI::App& command, std::string_view argument) {
  constexpr std::string_view kUse = "use ";
  const std::string dashed = Dashed(argument);
  if (dashed != FlagOf(argument) && Has(command, dashed)) return fmt::format("{}{}", kUse, dashed);
  const std::string doubled = "-" + dashed;
  const bool is_word = dashed.size() > 2 && !dashed.starts_with("--");
  if (is_word && Has(command, doubled)) return fmt::format("{}{}", kUse, doubled);
  const std::string_view instead = InsteadOf(argument);
  if (instead == kPlainModel) return std::string(Has(command, "MODEL") ? instead : "");
  if (instead == kWholeModel) return std::string(Has(command, "--device") ? instead : "");
  if (!instead.starts_with(kUse)) return std::string(instead);
  const std::string_view flag = instead.substr(kUse.size());
  return std::string(Has(command, std::string(flag.substr(0, flag.find(' ')))) ? instead : "");
}

std::string NoFlag(std::string_view argument, std::string_view advice) {
  return fmt::format("there is no flag {}{}{}", FlagOf(argument), advice.empty() ? "" : "; ",
                     advice);
}

// The program and the commands that were understood.
std::vector<const CLI::App*> CommandsOf(const CLI::App& parser) {
  std::vector<const CLI::App*> path = {&parser};
  for (auto next = parser.get_subcommands(); !next.empty(); next = next[0]->get_subcommands()) {
    path.push_back(next[0]);
  }
  return path;
}

// "spry serve".
std::string CommandOf(const CLI::App& parser) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(parser)) names.push_back(command->get_name());
  return fmt::format("{}", fmt::join(names, " "));
}

// "give one of generate, chat", of what may come next.
std::string NextCommands(const CLI::App& parser) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(parser).back()->get_subcommands(/*filter=*/{})) {
    names.push_back(command->get_name());
  }
  return fmt::format("give one of {}", fmt::join(names, ", "));
}

// Those that nothing took, which are in the order of the command line: one of them is not an equal
// argument before it.
std::vector<std::string_view> LeftOver(const CLI::App& parser,
                                       std::span<const char* const> arguments) {
  std::vector<std::string_view> left;
  auto from = arguments.begin();
  for (const std::string& remaining : parser.remaining(/*recurse=*/true)) {
    auto found = std::find(from, arguments.end(), remaining);
    if (found == arguments.end()) found = std::find(arguments.begin(), arguments.end(), remaining);
    if (found == arguments.end()) continue;
    left.emplace_back(*found);
    from = found + 1;
  }
  return left;
}

// Word processors and web pages make one dash, or a longer one, of two.
bool HasForeignDash(std::string_view argument) {
  constexpr std::string_view kDashes[] = {"\u2010", "\u2011", "\u2012", "\u2013",
                                          "\u2014", "\u2015", "\u2212"};
  argument.remove_prefix(std::min(argument.find_first_not_of('-'), argument.size()));
  return std::ranges::any_of(
      kDashes, [argument](std::string_view dash) { return argument.starts_with(dash); });
}

// Whether the command has the flag, which stands before it.
bool ComesTooEarly(const CLI::App& parser, const std::string& flag,
                   std::span<const char* const> arguments) {
  const std::vector<const CLI::App*> path = CommandsOf(parser);
  if (path.size() < 2 || !Has(*path.back(), flag)) return false;
  for (const std::string_view argument : arguments) {
    if (argument == path[1]->get_name()) return false;
    if (FlagOf(argument) == flag) return true;
  }
  return false;
}

std::string Message(const CLI::App& parser, const CLI::ParseError& error,
                    std::span<const char* const> arguments) {
  const std::vector<std::string_view> left = LeftOver(parser, arguments);
  const CLI::App& command = *CommandsOf(parser).back();
  for (const std::string_view argument : left) {
    const std::string flag(FlagOf(argument));
    if (ComesTooEarly(parser, flag, arguments)) {
      return fmt::format("{} belongs behind {}", flag, CommandOf(parser));
    }
    if (HasForeignDash(argument)) {
      return fmt::format("'{}' does not begin with '-' or '--' but with another dash", argument);
    }
    const std::string advice = Advice(command, argument);
    if (!advice.empty() || !InsteadOf(argument).empty()) return NoFlag(argument, advice);
  }
  const std::string what = error.what();
  const bool has_extras = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  // CLI11 asks for the command before it looks at what is left over.
  const bool lacks_command = what.find("subcommand is required") != std::string::npos;
  if (!left.empty() && (lacks_command || has_extras)) {
    const std::string_view first = left.front();
    if (first.starts_with('-')) return NoFlag(first, "");
    if (lacks_command)
      return fmt::format("there is no command '{}'; {}", first, NextCommands(parser));
    return fmt::format(
        "'{}' was not expected; a flag that takes several values is given once for "
        "each",
        first);
  }
  if (lacks_command) return "a command is missing; " + NextCommands(parser);
  // Numbers and choices are read by ours; what CLI11 converts itself are flags with a value.
  constexpr std::string_view kNoConversion = "Could not convert: ";
  if (const size_t equals = what.find(" = ");
      what.starts_with(kNoConversion) && equals != what.npos) {
    return fmt::format("{}: '{}' must be true or false; the flag alone means true",
                       what.substr(kNoConversion.size(), equals - kNoConversion.size()),
                       what.substr(equals + 3));
  }
  return what;
}

}  // namespace

std::string ExplainFlag(std::string_view argument) { return NoFlag(argument, InsteadOf(argument)); }

std::string ExplainError(const CLI::App& parser, const CLI::ParseError& error,
                         std::span<const char* const> arguments) {
  return fmt::format("{} (see {} --help)", Message(parser, error, arguments), CommandOf(parser));
}

}  // namespace spry
