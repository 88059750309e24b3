// One line of a .jsonl file of prompts: an object with `prompt` (text) or `prompt_token_ids`, and
// any sampling field by the name that it has in the HTTP API. Null counts as absent, as clients
// write it. Types are checked here, ranges by CheckRanges of api/sampling_params.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/sampling_fields.h"
#include "base/ids.h"
#include "base/status.h"

namespace spry {

struct PromptLine {
  std::optional<std::string> text;  // else token_ids
  bool chat = false;                // `text` is a user's message, not yet a prompt
  std::vector<TokenId> token_ids;
  SamplingFields sampling;
  std::optional<int> priority;
};

// InvalidArgument names the field and what was found.
Result<PromptLine> ParsePromptLine(std::string_view line);

}  // namespace spry
