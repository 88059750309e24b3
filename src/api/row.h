// The two plain messages between a request and its permanent row on a device: what the row is told
// when the request joins, and what it tells back after each step. They lie in memory shared with
// accelerators, so: fixed sizes, no pointers, trivially copyable.
#pragma once

#include <cstdint>

#include "api/sampling_params.h"
#include "base/ids.h"

namespace spry {

enum class FinishReason : uint8_t {
  kNone,
  kStop,    // an end or stop id
  kLength,  // max_tokens or the model's length
  kError,   // this request failed; the message says why
};

// Why a row yields no token although one was wanted; the request fails alone.
enum class RowFault : uint8_t {
  kNone,
  kNan,             // the logits held a NaN or an infinity
  kNothingAllowed,  // the request's rules left no token to choose (api/logit_rules.h)
};

// For whoever asked.
inline const char* FaultText(RowFault fault) {
  switch (fault) {
    case RowFault::kNone: break;
    case RowFault::kNan: return "the model gave no usable logits (NaN)";
    case RowFault::kNothingAllowed:
      return "allowed_token_ids, bad_words and min_tokens together leave no token to choose";
  }
  return "the device lost the request";
}

// Tokens one step can yield for one row; above 1 only with speculative decoding.
inline constexpr int kMaxTokensPerRow = 1;

struct RowParams {
  float temperature = 0.0f;  // 0: greedy; else at least kGreedyTemperature
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;  // 0: off
  uint64_t seed = 0;
  int32_t min_outputs = 0;           // stop ids are masked before that many outputs
  int32_t max_outputs = 0;           // kLength at that many outputs; 0: at the end of the prompt
  int32_t num_logprobs = -1;         // -1: none
  int32_t num_prompt_logprobs = -1;  // of prompt tokens; -1: none
  int32_t num_stop_ids = 0;
  TokenId stop_ids[kMaxStopTokenIds] = {};
};

struct TokenLogprob {
  TokenId token;
  float logprob = 0.0f;  // natural logarithm, over the whole vocabulary, before temperature
};

// What a row of logits says of one token and of the likeliest ones.
struct TokenLogprobs {
  int32_t rank = 0;  // of the token among the logits, from 1
  int32_t num_top = 0;
  TokenLogprob chosen;
  TokenLogprob top[kMaxLogprobs] = {};  // by falling probability, ties by rising id
};

struct RowResult {
  int32_t count = 0;  // tokens valid; 0 while a prompt is being read or when the row was padding
  TokenId tokens[kMaxTokensPerRow] = {};
  FinishReason finish = FinishReason::kNone;
  RowFault fault = RowFault::kNone;
};

}  // namespace spry
