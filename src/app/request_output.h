// What one request of `spry generate` has produced so far, as text and as a line of JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/row.h"
#include "api/sampling_params.h"
#include "sched/scheduler.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace spry {

class RequestOutput {
 public:
  struct Options {
    int index = 0;                         // among the inputs, from 0
    int choice = 0;                        // among the answers to it, from 0
    const Tokenizer* tokenizer = nullptr;  // must outlive this; null: token ids stand for text
    int prompt_tokens = 0;
    SamplingParams sampling;  // what of it shapes the output: stops and logprobs
  };
  explicit RequestOutput(Options options);

  // The text that the event made readable, valid until the next call. An end or stop id is counted
  // but not spelled. A stop string may end the output here before the engine knows.
  std::string_view Take(const TokenEvent& event);

  bool finished() const { return finish_ != FinishReason::kNone; }
  FinishReason finish() const { return finish_; }
  const std::string& text() const { return text_; }
  // {"index", "choice", "prompt_tokens", "cached_tokens", "token_ids", "text", "finish_reason",
  // "stop_reason"} and, when asked for, "logprobs": per token its id, logprob, rank and the
  // likeliest others, and "prompt_logprobs": the same per token of the prompt, null for its first.
  // stop_reason: the stop string or the stop id that was asked for, else null.
  std::string ToJson() const;

 private:
  void Spell(const TokenEvent& event);

  Options options_;
  std::optional<Detokenizer> detokenizer_;
  std::string spelled_;  // of this event
  StopScanner stops_;
  int cached_tokens_ = 0;
  std::vector<TokenId> token_ids_;
  std::vector<TokenLogprobs> logprobs_;
  std::vector<TokenLogprobs> prompt_logprobs_;  // from the second token on
  std::string text_;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace spry
