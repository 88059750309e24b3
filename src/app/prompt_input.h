// Gathers what is to be generated from: --prompt, --chat, --prompt-file, --input, or stdin when
// none of them is given and it is not a terminal.
#pragma once

#include <string>
#include <vector>

#include "app/prompt_line.h"
#include "base/status.h"

namespace spry {

struct PromptFlags {
  std::vector<std::string> prompts;
  std::vector<std::string> chats;
  std::vector<std::string> prompt_files;
  std::string input;  // .jsonl
};

struct PromptEntry {
  std::string where;  // for messages: "--prompt 2", "F.jsonl:3", "stdin"
  Result<PromptLine> line;
};

// In the order prompts, chats, files, lines. A bad line is an entry with its error; a file that
// cannot be read is an error of the whole.
Result<std::vector<PromptEntry>> GatherPrompts(const PromptFlags& flags);

}  // namespace spry
