// The spry command: which subcommands there are, and how errors and exit codes leave the program.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "app/command.h"
#include "app/command_error.h"
#include "app/flag_checks.h"
#include "app/write_text.h"

namespace spry {
namespace {

int Fail(int exit_code, std::string_view message) {
  Complain(message);
  return exit_code;
}

// A closed standard stream would give its number to the first file that is opened. What would be
// written to a closed stdout is an error there, as if nobody had stepped in. A reader that goes
// away ends the program quietly; a file that may not grow (ulimit -f) is an error to report.
void PrepareStreams() {
  constexpr int kModes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", kModes[stream]);
  }
  std::signal(SIGPIPE, SIG_DFL);
  std::signal(SIGXFSZ, SIG_IGN);
}

// What is read from a mapped file beyond its end: it has become shorter, or was never whole.
extern "C" void ExplainBusError(int) {
  constexpr std::string_view kMessage =
      "spry: a file of the model, or libspry_cuda.so, is shorter than it should be, or its disk "
      "fails; start again once it is whole\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(kExitFailed);
}

// CLI11 reads "-hf" as "-h -f", and would show its help to who brings that flag from llama-server.
bool IsUnknownShortFlag(std::string_view argument) {
  return argument.size() > 2 && argument.starts_with("-h");
}

// An empty value is mostly a shell's variable that is not set. Only a prompt may be empty.
void RefuseEmptyValues(CLI::App& parser) {
  for (CLI::Option* option : parser.get_options()) {
    if (option->get_type_size() > 0 && option->get_group() != kPromptGroup) {
      option->check(NotEmpty());
    }
  }
  for (CLI::App* command : parser.get_subcommands(/*filter=*/{})) RefuseEmptyValues(*command);
}

int Run(int argc, char** argv) {
  CLI::App parser("spry serves language models: one program, on CPU or GPU.", "spry");
  parser.set_version_flag("--version", "spry " SPRY_VERSION);
  parser.require_subcommand(1);
  parser.get_formatter()->column_width(34);
  parser.footer(
      "`spry COMMAND --help` shows the flags and an example of each.\n\n"
      "Example:\n  spry generate model.gguf --prompt 'Once upon a time'");
  CLI::App& bench = *parser.add_subcommand(
      "bench", "Measure latency, throughput, host cost, single ops, perplexity, the machine");
  bench.require_subcommand(1);
  bench.footer("Example:\n  spry bench latency model.gguf --batch-size 8");
  const Command commands[] = {
      AddGenerate(parser),      AddChat(parser),           AddServe(parser),
      AddBenchLatency(bench),   AddBenchThroughput(bench), AddBenchOverhead(bench),
      AddBenchAttention(bench), AddBenchGemm(bench),       AddBenchPerplexity(bench),
      AddBenchMachine(bench),   AddInspect(parser),        AddBackends(parser),
  };

  RefuseEmptyValues(parser);

  try {
    parser.parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    const auto unknown = std::find_if(argv + 1, argv + argc, IsUnknownShortFlag);
    if (unknown != argv + argc) {
      return Fail(kExitUsage, ExplainFlag(*unknown) + " (see spry --help)");
    }
    std::ostringstream text;
    const int code = parser.exit(wanted, text, text);
    const Status written = WriteStdout(text.str());
    return written.ok() ? code : Fail(kExitFailed, written.message());
  } catch (const CLI::ParseError& error) {
    return Fail(kExitUsage, ExplainError(parser, error, {argv + 1, argv + argc}));
  }
  for (const Command& command : commands) {
    if (!command.parser->parsed()) continue;
    const Result<int> code = command.run();
    return code.ok() ? *code : Fail(kExitFailed, code.status().message());
  }
  return kExitUsage;
}

}  // namespace
}  // namespace spry

int main(int argc, char** argv) {
  spry::PrepareStreams();
  std::signal(SIGBUS, spry::ExplainBusError);
  try {
    return spry::Run(argc, argv);
  } catch (const std::bad_alloc&) {
    return spry::Fail(spry::kExitFailed, "the system refuses more memory (ulimit -v, cgroup)");
  } catch (const std::exception& error) {
    return spry::Fail(spry::kExitFailed, error.what());
  }
}
