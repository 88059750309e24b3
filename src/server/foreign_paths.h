// Paths that vLLM and llama-server have and this server has not, and what to use in their place. As
// docs/server.md lists them.
#pragma once

#include <string_view>

namespace spry {

struct ForeignPath {
  std::string_view path;  // one that ends in '/' stands for all that begin so
  std::string_view instead;
};

inline constexpr std::string_view kUseChat = "use /v1/chat/completions";
inline constexpr std::string_view kUseCompletions = "use /v1/completions";
inline constexpr std::string_view kUseServerInfo = "/server_info says what is set";
inline constexpr std::string_view kNotWritten = "it is not written yet";

inline constexpr ForeignPath kForeignPaths[] = {
    {"/v1/responses", kUseChat},
    {"/v1/messages", kUseChat},
    {"/chat/completions", kUseChat},
    {"/completions", kUseCompletions},
    {"/completion", kUseCompletions},
    {"/models", "use /v1/models"},
    {"/props", kUseServerInfo},
    {"/slots", kUseServerInfo},
    {"/apply-template", "use /tokenize with messages"},
    {"/v1/embeddings", kNotWritten},
    {"/v1/score", kNotWritten},
    {"/v1/rerank", kNotWritten},
    {"/pooling", kNotWritten},
    {"/classify", kNotWritten},
    {"/v1/audio/", kNotWritten},
    {"/v1/realtime", kNotWritten},
    {"/v1/load_lora_adapter", kNotWritten},
    {"/lora-adapters", kNotWritten},
    {"/infill", kNotWritten},
};

// What to say of an unknown path; empty: nothing is known of it.
constexpr std::string_view InsteadOf(std::string_view path) {
  for (const ForeignPath& foreign : kForeignPaths) {
    const bool is_folder = foreign.path.ends_with('/');
    if (is_folder ? path.starts_with(foreign.path) : path == foreign.path) return foreign.instead;
  }
  return {};
}

}  // namespace spry
