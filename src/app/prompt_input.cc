#include "app/prompt_input.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "app/read_text.h"

namespace spry {
namespace {

// Editors and echo end a file with a line end that is not part of what was written.
std::string WithoutLastLineEnd(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

PromptEntry TextEntry(std::string where, std::string text) {
  PromptLine line;
  line.text = std::move(text);
  return {.where = std::move(where), .line = std::move(line)};
}

void AddLines(const std::string& path, std::string_view text, std::vector<PromptEntry>& entries) {
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    entries.push_back({.where = fmt::format("{}:{}", path, number), .line = ParsePromptLine(line)});
  }
}

}  // namespace

Result<std::vector<PromptEntry>> GatherPrompts(const PromptFlags& flags) {
  std::vector<PromptEntry> entries;
  for (const std::string& prompt : flags.prompts) {
    entries.push_back(TextEntry(fmt::format("--prompt {}", entries.size() + 1), prompt));
  }
  for (const std::string& message : flags.chats) {
    entries.push_back(TextEntry(fmt::format("--chat {}", entries.size() + 1), message));
    entries.back().line->chat = true;
  }
  for (const std::string& path : flags.prompt_files) {
    SPRY_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
    entries.push_back(TextEntry(path, WithoutLastLineEnd(std::move(text))));
  }
  if (!flags.input.empty()) {
    SPRY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.input));
    AddLines(flags.input, text, entries);
    if (entries.empty()) return InvalidArgument(flags.input + " has no line with a prompt");
  }
  if (!entries.empty()) return entries;
  if (isatty(STDIN_FILENO) != 0) {
    return InvalidArgument(
        "no prompt; give --prompt, --chat, --prompt-file, --input or text on stdin");
  }
  SPRY_ASSIGN_OR_RETURN(std::string text, ReadText(stdin, "stdin"));
  entries.push_back(TextEntry("stdin", WithoutLastLineEnd(std::move(text))));
  return entries;
}

}  // namespace spry
