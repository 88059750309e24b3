// What one request of `spry generate` has produced so far, as text and as a line of JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/row.h"
#include "api/sampling_params.h"
#include "engine/choice_text.h"
#include "sched/scheduler.h"
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

  // The text that the event made readable, valid until the next call. A stop string may end the
  // output here before the engine knows.
  std::string_view Take(const TokenEvent& event);

  bool finished() const { return choice_.finished(); }
  FinishReason finish() const { return choice_.finish(); }
  const std::string& text() const { return has_text() ? choice_.text() : ids_; }
  // {"index", "choice", "prompt_tokens", "cached_tokens", "token_ids", "text", "finish_reason",
  // "stop_reason"} and, when asked for, "logprobs": per token its id, logprob, rank and the
  // likeliest others, and "prompt_logprobs": the same per token of the prompt, null for its first.
  // stop_reason: the stop string or the stop id that was asked for, else null.
  std::string ToJson() const;

 private:
  bool has_text() const { return options_.tokenizer != nullptr; }

  Options options_;
  ChoiceText choice_;
  std::string ids_;  // where there is no text
  int cached_tokens_ = 0;
  std::vector<TokenLogprobs> logprobs_;
  std::vector<TokenLogprobs> prompt_logprobs_;  // from the second token on
};

}  // namespace spry
