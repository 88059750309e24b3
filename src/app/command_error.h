// What is said of a wrong command line: one line that names what was not understood and, where it
// is a flag of vLLM or llama.cpp, what stands for it here.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace spry {

// `parser` after it threw `error` over `arguments`, the program's name not among them.
std::string ExplainError(const CLI::App& parser, const CLI::ParseError& error,
                         std::span<const char* const> arguments);

// Of a flag that does not exist.
std::string ExplainFlag(std::string_view argument);

}  // namespace spry
