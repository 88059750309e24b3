// What the benchmarks share: random prompts, and the loop that runs requests to their ends as a
// user would have them, text included.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "app/tail_control.h"
#include "base/ids.h"
#include "base/status.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace spry {

// Ids drawn evenly from [low, high).
std::vector<TokenId> RandomPrompt(std::mt19937_64& random, int length, int low, int high);
// vLLM draws from the first 10,000 ids; smaller vocabularies are used whole.
int RandomIdsEnd(int64_t vocab_size);
// Refuses what cannot run or be held, before prompts are made: one longer than the engine takes, or
// all of them together beyond kMaxBenchTokens.
inline constexpr int64_t kMaxBenchTokens = int64_t{1} << 28;
Status CheckPrompts(const Engine& engine, int64_t longest, int64_t total_tokens);
// As vLLM's benchmarks: temperature 1, end ids ignored.
GenerationRequest BenchRequest(std::vector<TokenId> prompt, int output_len);

struct RunTotals {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompts
  int64_t output_tokens = 0;
  double seconds = 0;  // without the time of the control

  double hit_rate() const {
    return prompt_tokens == 0
               ? 0.0
               : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  }
};

// Filled by RunToEnd while every request is past its first token and none has ended.
struct StepTimes {
  std::vector<double> decode_us;   // a step and the text of its tokens
  TailControl* control = nullptr;  // run after each of these steps; may be null
};

// Upper ends of the flags of the benchmarks.
inline constexpr int64_t kMaxBenchLength = 1 << 24;    // tokens of one prompt or output
inline constexpr int64_t kMaxBenchRequests = 1 << 20;  // at once: the engine's queue
inline constexpr int64_t kMaxBenchIterations = 1000000;

// Submits the requests and steps until all have ended. Detokenizes when there is a tokenizer.
// `times` may be null. Internal when a request fails.
Result<RunTotals> RunToEnd(Engine& engine, const Tokenizer* tokenizer,
                           std::span<const GenerationRequest> requests, StepTimes* times);

}  // namespace spry
