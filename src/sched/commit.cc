#include "base/check.h"
#include "sched/scheduler.h"

namespace spry {

void Scheduler::Commit(const StepResults& results, std::vector<TokenEvent>& events) {
  CHECK(steps_in_flight() > 0);
  const std::vector<LaunchedRow>& step = steps_[0];
  CHECK(results.rows.size() == step.size());
  size_t next_sample = 0;
  for (size_t i = 0; i < step.size(); ++i) {
    const LaunchedRow& launched = step[i];
    const size_t sample = next_sample;
    next_sample += launched.num_samples;
    const Row& row = rows_[launched.row.value()];
    const bool stale = row.owner == nullptr || row.generation != launched.generation;
    if (stale) continue;
    Request& request = *row.owner;
    if (launched.draws) --request.outputs_in_flight;

    TokenEvent& event = events.emplace_back();
    TakeResult(request, launched, results.rows[i],
               results.logprobs.subspan(sample, launched.num_samples), event);
    const bool ends = event.finish != FinishReason::kNone;
    if (!event.has_token && !ends && event.prompt_logprobs.empty()) events.pop_back();
    if (ends) End(request);
  }
  steps_.PopOldest();
}

// Moves what a row brought into its live request and says what that means for the request.
// `logprobs` are those of the row's samples.
void Scheduler::TakeResult(Request& request, const LaunchedRow& launched, const RowResult& result,
                           std::span<const TokenLogprobs> logprobs, TokenEvent& event) {
  event.request = request.id;
  event.num_cached_tokens = request.num_cached_tokens;
  event.admitted_at = request.admitted_at;
  // A live row that chose a token has one, any other none; a device that says otherwise has lost
  // this request, which fails alone.
  const int expected = launched.draws && request.params.max_outputs > 0 ? 1 : 0;
  if (result.fault != RowFault::kNone || result.count != expected) {
    event.finish = FinishReason::kError;
    event.fault = result.fault;
    return;
  }
  event.finish = result.finish;
  const int num_targets = launched.num_samples - (launched.draws ? 1 : 0);
  if (num_targets > 0) {
    event.prompt_logprobs = logprobs.first(num_targets);
    event.first_prompt_logprob = request.num_judged + 1;
    request.num_judged += num_targets;
  }
  if (result.count == 0) return;
  event.has_token = true;
  event.token = result.tokens[0];
  if (request.params.num_logprobs >= 0) event.logprobs = &logprobs.back();
  // The KV of the tokens before this one was computed by steps committed by now, its own was not.
  PublishBlocks(request, static_cast<int>(request.tokens.size()));
  request.tokens.push_back(event.token);
}

}  // namespace spry
