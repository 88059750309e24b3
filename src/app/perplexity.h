// How well a model predicts a text, as llama-perplexity measures it. The ids are cut into windows
// of c that follow one another (a shorter rest is left out); each is read by itself, and its tokens
// c/2 + 1 .. c - 1, from 0, are scored, so that each has c/2 or more before it.
//
//   NLL = mean of -log p(token | those before it in the window), in nats
//   perplexity = exp(NLL), +- perplexity * sqrt((mean of squares - NLL^2) / (scored tokens - 1))
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "engine/engine.h"

namespace spry {

struct Perplexity {
  int64_t windows = 0;
  int64_t scored_tokens = 0;
  double nll = 0;
  double value = 0;
  double error = 0;  // standard error of `value`
  double seconds = 0;
};

// window: tokens, at most the engine's max_model_len. `bos`, where the tokenizer puts it before a
// text, stands in for the first token of each window. InvalidArgument when there is no whole
// window.
Result<Perplexity> MeasurePerplexity(Engine& engine, std::span<const TokenId> tokens,
                                     int64_t window, std::optional<TokenId> bos);

}  // namespace spry
