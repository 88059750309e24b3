// The model that a server serves, as its answers need it. Made once; not changed while serving.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/sampling_params.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace spry {

// No vocabulary at hand has longer tokens. What cannot fit is refused before it is tokenized, which
// takes seconds for megabytes without a space.
inline constexpr int64_t kMostBytesPerToken = 256;

struct ServedModel {
  std::vector<std::string> names;        // --served-model-name: at least one; answers say the first
  const Tokenizer* tokenizer = nullptr;  // null: there is no text, prompts must be ids
  const ChatTemplate* chat_template = nullptr;  // null: no chat, unless a request brings its own
  // What a request's own template sees: "bos_token" -> "<s>".
  std::vector<std::pair<std::string, std::string>> special_texts;
  bool trust_request_chat_template = false;  // --trust-request-chat-template

  int64_t vocab_size = 0;
  int64_t max_model_len = 0;  // prompt and answer together, in tokens
  int max_choices = 0;        // that can run or wait at once
  SamplingParams defaults;    // what a request starts from (generation_config.json)
  int64_t created = 0;        // Unix time
  std::string fingerprint;    // system_fingerprint: of the version and what shapes results

  bool IsServed(std::string_view name) const {
    return std::ranges::find(names, name) != names.end();
  }
};

}  // namespace spry
