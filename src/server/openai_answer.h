// Answers to requests for text in OpenAI's forms: chat.completion, chat.completion.chunk and
// text_completion (whole and in chunks). What is asked for of vLLM's extras stands beside: token
// ids, prompt_logprobs, stop_reason.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "api/row.h"
#include "base/ids.h"
#include "server/api_request.h"
#include "server/choice_logprobs.h"

namespace spry {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

// A choice, or a chunk of one.
struct ChoicePiece {
  int index = 0;
  std::string_view echo;  // before the text, with JSON's escapes
  std::string_view text;
  const ChoiceLogprobs* logprobs = nullptr;   // null: null
  FinishReason finish = FinishReason::kNone;  // of a chunk that is not the last
  const std::string* stop_string = nullptr;   // stop_reason
  std::optional<TokenId> stop_token;          // stop_reason
  std::span<const TokenId> token_ids;         // written when asked for
  std::span<const TokenId> prompt_ids;        // likewise; empty: not in this piece
  std::string_view prompt_logprobs;           // the inside of the list; whole answers
  bool role = false;                          // of a chat: the choice's first chunk
};

class OpenAiAnswer {
 public:
  // `request` must outlive this.
  OpenAiAnswer(const ApiRequest& request, std::string_view id, std::string_view fingerprint,
               int64_t created);

  // One event of a stream: "data: {...}\n\n", appended. `usage`: of the stream so far.
  void WriteChunk(const ChoicePiece& piece, const Usage& usage, std::string& out) const;
  // The chunk behind all choices that carries the usage, if it was asked for.
  void WriteUsageChunk(const Usage& usage, std::string& out) const;

  // A whole answer: Begin, each choice, End.
  void BeginWhole(std::string& out) const;
  void WriteChoice(const ChoicePiece& piece, std::string& out) const;
  void EndWhole(const ChoicePiece& first, const Usage& usage, std::string& out) const;

 private:
  bool chat() const { return request_.kind == ApiRequest::Kind::kChat; }
  void WriteDelta(const ChoicePiece& piece, JsonWriter& json) const;
  void WriteFinish(const ChoicePiece& piece, JsonWriter& json) const;
  void WritePromptExtras(const ChoicePiece& piece, JsonWriter& json) const;

  const ApiRequest& request_;
  std::string chunk_head_;  // "data: {"id":...,"choices":["
  std::string whole_head_;
};

void WriteUsage(const Usage& usage, JsonWriter& json);

// The word for it, or null.
const char* FinishWord(FinishReason reason);

// "data: [DONE]\n\n"
inline constexpr std::string_view kStreamEnd = "data: [DONE]\n\n";

}  // namespace spry
