#include "app/bench_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "text/detokenizer.h"

namespace spry {
namespace {

using Instant = std::chrono::steady_clock::time_point;

Instant Now() { return std::chrono::steady_clock::now(); }
double Seconds(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

// A request on its way; they lie in the order of their ids, which the engine counts up.
struct Running {
  std::optional<Detokenizer> detokenizer;
  std::string text;
  bool has_token = false;
};

// Counts and spells the tokens of one step.
class Collector {
 public:
  Collector(const Tokenizer* tokenizer, size_t count) : running_(count) {
    constexpr bool kSkipSpecialTokens = true;
    if (tokenizer == nullptr) return;
    for (Running& request : running_) request.detokenizer.emplace(*tokenizer, kSkipSpecialTokens);
  }

  void SetFirst(RequestId first) { first_ = first.value(); }

  Status Take(const TokenEvent& event, RunTotals& totals) {
    if (event.finish == FinishReason::kError) {
      return Internal(FaultText(event.fault));
    }
    Running& request = running_[event.request.value() - first_];
    ++totals.output_tokens;
    if (request.detokenizer) request.detokenizer->Append(event.token, request.text);
    if (!request.has_token) {
      request.has_token = true;
      ++started_;
      totals.cached_tokens += event.num_cached_tokens;
    }
    if (event.finish != FinishReason::kNone) {
      if (request.detokenizer) request.detokenizer->Finish(request.text);
      ++ended_;
    }
    return {};
  }

  bool all_decode() const { return started_ == running_.size() && ended_ == 0; }

 private:
  std::vector<Running> running_;
  uint64_t first_ = 0;
  size_t started_ = 0;
  size_t ended_ = 0;
};

}  // namespace

std::vector<TokenId> RandomPrompt(std::mt19937_64& random, int length, int low, int high) {
  std::vector<TokenId> prompt;
  prompt.reserve(length);
  for (int i = 0; i < length; ++i) {
    prompt.emplace_back(low + static_cast<int>(random() % static_cast<uint64_t>(high - low)));
  }
  return prompt;
}

int RandomIdsEnd(int64_t vocab_size) {
  constexpr int64_t kEnd = 10'000;
  return static_cast<int>(std::min(kEnd, vocab_size));
}

Status CheckPrompts(const Engine& engine, int64_t longest, int64_t total_tokens) {
  const int64_t max_model_len = engine.memory_plan().max_model_len;
  if (longest >= max_model_len) {
    return InvalidArgument(fmt::format(
        "the prompt has {} tokens; with a max_model_len of {} it may have at most {}: shorten it",
        longest, max_model_len, max_model_len - 1));
  }
  if (total_tokens > kMaxBenchTokens) {
    return InvalidArgument(fmt::format("the prompts have {} tokens together; at most {} are held",
                                       total_tokens, kMaxBenchTokens));
  }
  return {};
}

GenerationRequest BenchRequest(std::vector<TokenId> prompt, int output_len) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 1.0;
  request.sampling.max_tokens = output_len;
  request.sampling.ignore_eos = true;
  return request;
}

Result<RunTotals> RunToEnd(Engine& engine, const Tokenizer* tokenizer,
                           std::span<const GenerationRequest> requests, StepTimes* times) {
  RunTotals totals;
  Collector collector(tokenizer, requests.size());
  double control_seconds = 0;
  const Instant start = Now();
  for (size_t i = 0; i < requests.size(); ++i) {
    SPRY_ASSIGN_OR_RETURN(const RequestId id, engine.Submit(requests[i]));
    if (i == 0) collector.SetFirst(id);
    totals.prompt_tokens += static_cast<int64_t>(requests[i].prompt.size());
  }
  while (!engine.idle()) {
    const bool is_decode = collector.all_decode();
    const Instant before = Now();
    SPRY_ASSIGN_OR_RETURN(const std::span<const TokenEvent> events, engine.Step());
    for (const TokenEvent& event : events) SPRY_RETURN_IF_ERROR(collector.Take(event, totals));
    if (times == nullptr || !is_decode) continue;
    const Instant after = Now();
    times->decode_us.push_back(Seconds(before, after) * 1e6);
    if (times->control != nullptr) {
      times->control->Run();
      control_seconds += Seconds(after, Now());
    }
  }
  totals.seconds = Seconds(start, Now()) - control_seconds;
  return totals;
}

}  // namespace spry
