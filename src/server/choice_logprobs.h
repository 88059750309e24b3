// The log-probabilities of one choice, written as JSON when they come: in the shape of completions
// (four lists) or of chat (one list of objects), and of vLLM's prompt_logprobs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/row.h"
#include "base/ids.h"
#include "server/api_request.h"
#include "server/json_writer.h"
#include "text/tokenizer.h"

namespace spry {

struct LogprobsShape {
  ApiRequest::Kind kind = ApiRequest::Kind::kCompletion;
  const Tokenizer* tokenizer = nullptr;  // must outlive what uses the shape; null: ids stand for it
  bool tokens_as_ids = false;            // "token_id:17" for the token's text
};

class ChoiceLogprobs {
 public:
  explicit ChoiceLogprobs(const LogprobsShape& shape) : shape_(shape) {}

  // `offset`: characters of the text before the token. Completions only say that.
  void Add(const TokenLogprobs& token, int64_t offset);
  // The first token of a prompt, which nothing foretells. Completions only.
  void AddUnforetold(TokenId token, int64_t offset);

  // The value of "logprobs": what has been added since the last Clear.
  void Write(JsonWriter& json) const;
  bool empty() const { return tokens_.empty(); }
  void Clear();

 private:
  void AddTop(const TokenLogprobs& token);
  void AddChatEntry(const TokenLogprobs& token);

  LogprobsShape shape_;
  // The insides of lists.
  std::string tokens_;  // of chat: "content"
  std::string logprobs_;
  std::string top_;
  std::string offsets_;
};

// One element of prompt_logprobs: {"17": {"logprob", "rank", "decoded_token"}, ...}.
void WritePromptLogprobs(const TokenLogprobs& token, const Tokenizer* tokenizer, JsonWriter& json);

}  // namespace spry
