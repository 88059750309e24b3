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

PromptEntry TextEntry(std::string where, std::string text, bool chat = false) {
  PromptLine line;
  line.text = std::move(text);
  line.chat = chat;
  return {.where = std::move(where), .line = std::move(line)};
}

Status AddLines(const std::string& path, std::string_view text, std::vector<PromptEntry>& entries) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // which some editors put there
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  // A model, say, given by mistake: a complaint about each of its lines helps nobody.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return InvalidArgument(
        fmt::format("{}: byte {} is zero, so it is no text; expected JSON lines", path, zero));
  }
  const size_t before = entries.size();
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    entries.push_back({.where = fmt::format("{}:{}", path, number), .line = ParsePromptLine(line)});
  }
  if (entries.size() == before) return InvalidArgument(path + " has no line with a prompt");
  return {};
}

// A flag's place among all of them: "--prompt 2".
std::string Place(const char* flag, const std::vector<PromptEntry>& entries) {
  return fmt::format("{} {}", flag, entries.size() + 1);
}

Status Add(const PromptSource& source, std::vector<PromptEntry>& entries) {
  switch (source.kind) {
    case PromptSource::Kind::kPrompt:
      entries.push_back(TextEntry(Place("--prompt", entries), source.value));
      return {};
    case PromptSource::Kind::kChat:
      entries.push_back(TextEntry(Place("--chat", entries), source.value, /*chat=*/true));
      return {};
    case PromptSource::Kind::kFile: {
      SPRY_ASSIGN_OR_RETURN(std::string text, ReadTextFile(source.value));
      entries.push_back(TextEntry(source.value, WithoutLastLineEnd(std::move(text))));
      return {};
    }
    case PromptSource::Kind::kLines: {
      SPRY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(source.value));
      return AddLines(source.value, text, entries);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<PromptEntry>> GatherPrompts(std::span<const PromptSource> sources) {
  std::vector<PromptEntry> entries;
  for (const PromptSource& source : sources) SPRY_RETURN_IF_ERROR(Add(source, entries));
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
