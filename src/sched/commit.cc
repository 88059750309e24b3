#include "base/check.h"
#include "sched/scheduler.h"

namespace spry {

void Scheduler::Commit(std::span<const RowResult> results, std::vector<TokenEvent>& events) {
  CHECK(steps_in_flight() > 0);
  const std::vector<LaunchedRow>& step = steps_[0];
  CHECK(results.size() == step.size());
  for (size_t i = 0; i < step.size(); ++i) {
    const Row& row = rows_[step[i].row.value()];
    const bool stale = row.owner == nullptr || row.generation != step[i].generation;
    if (stale) continue;
    Request& request = *row.owner;
    if (step[i].sample) --request.outputs_in_flight;

    const TokenEvent event = TakeResult(request, step[i].sample, results[i]);
    if (event.has_token || event.finish != FinishReason::kNone) events.push_back(event);
    if (event.finish != FinishReason::kNone) End(request);
  }
  steps_.PopOldest();
}

// Moves a row's token into its live request and says what that means for the request.
TokenEvent Scheduler::TakeResult(Request& request, bool sampled, const RowResult& result) {
  TokenEvent event;
  event.request = request.id;
  event.num_cached_tokens = request.num_cached_tokens;
  event.result = &result;
  // A live row that sampled has one token, any other none; a device that says otherwise has lost
  // this request, which fails alone.
  if (result.fault != RowFault::kNone || result.count != (sampled ? 1 : 0)) {
    event.finish = FinishReason::kError;
    return event;
  }
  event.finish = result.finish;
  if (result.count == 0) return event;
  event.has_token = true;
  event.token = result.tokens[0];
  // The KV of the tokens before this one was computed by steps committed by now, its own was not.
  PublishBlocks(request, static_cast<int>(request.tokens.size()));
  request.tokens.push_back(event.token);
  return event;
}

}  // namespace spry
