// Gathers what is to be generated from: --prompt, --chat, --prompt-file and --input in the order of
// the command line, or stdin when none of them is given and it is not a terminal.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/prompt_line.h"
#include "base/status.h"

namespace spry {

// One of the flags that bring prompts.
struct PromptSource {
  enum class Kind { kPrompt, kChat, kFile, kLines };
  Kind kind = Kind::kPrompt;
  std::string value;  // the text, or the path of a file with it
};

struct PromptEntry {
  std::string where;  // for messages: "--prompt 2", "F.jsonl:3", "stdin"
  Result<PromptLine> line;
};

// A bad line is an entry with its error; a file that cannot be read is an error of the whole.
Result<std::vector<PromptEntry>> GatherPrompts(std::span<const PromptSource> sources);

}  // namespace spry
