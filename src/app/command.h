// One command of the program: it declares its flags on a parser, and main runs it when the command
// line names it. main.cc has the list of all commands.
#pragma once

#include <functional>

#include "base/status.h"

namespace CLI {
class App;
}

namespace spry {

// Exit codes of the program.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;         // an error, or at least one request that failed
inline constexpr int kExitUsage = 2;          // the command line is wrong
inline constexpr int kExitInterrupted = 130;  // as a shell reports SIGINT

struct Command {
  const CLI::App* parser = nullptr;  // owned by the parent parser
  // The exit code, or the error that main prints.
  std::function<Result<int>()> run;
};

Command AddChat(CLI::App& parent);
Command AddGenerate(CLI::App& parent);
Command AddServe(CLI::App& parent);
Command AddBenchLatency(CLI::App& parent);
Command AddBenchThroughput(CLI::App& parent);
Command AddBenchOverhead(CLI::App& parent);
Command AddBenchAttention(CLI::App& parent);
Command AddBenchGemm(CLI::App& parent);
Command AddBenchPerplexity(CLI::App& parent);
Command AddBenchMachine(CLI::App& parent);
Command AddInspect(CLI::App& parent);
Command AddBackends(CLI::App& parent);

}  // namespace spry
