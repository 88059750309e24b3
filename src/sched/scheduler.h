// Decides what each step computes. Pure bookkeeping on one thread: no device, no clock, no lock,
// and no allocation but at admission, for a request's whole life. One rule, no prefill and decode
// phases: a step spends its token budget first on running requests, then on waiting ones, both in
// order of priority and arrival.
//
// The order is strict. A request that waits takes nothing from those that run, whatever its
// priority: it waits for a row and for blocks, and nobody behind it passes. Once it runs, those
// behind it get what it leaves of a step's budget, which may be nothing while its prompt is read.
// When blocks run out, the last running request in the order gives way. A steady stream of urgent
// requests therefore starves the others.
//
// Steps may be in flight: the scheduler counts what it launched and commits what came back, in
// order. A request finished or cancelled frees its row and blocks at once: everything a device does
// for a row is ordered by the stream of steps, so a later owner cannot be disturbed; results for an
// old (row, generation) are dropped. Rows finished on the device before the host knows are padding
// there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "api/row.h"
#include "base/ids.h"
#include "base/status.h"
#include "kv/block_pool.h"
#include "sched/batch_plan.h"
#include "sched/launched_steps.h"
#include "sched/request.h"
#include "sched/request_queue.h"
#include "sched/rule_slots.h"

namespace spry {

struct SchedulerOptions {
  int max_rows = 64;          // --max-num-seqs
  int max_step_tokens = 512;  // --max-num-batched-tokens
  int max_model_len = 2048;   // prompt + outputs of one request, tokens
  int max_waiting = 1 << 20;  // requests; more are refused with ResourceExhausted
  int max_block_writes = 0;   // per step; >= blocks of one request at max_model_len + max_rows
  int max_steps_in_flight = 1;
  int max_rule_slots = 0;          // --max-rule-slots: running requests with LogitRules
  int long_prefill_threshold = 0;  // most prompt tokens of one request per step; 0: no limit
  int max_targets = 0;             // prompt tokens judged per step; 0: no request may ask for that
};

struct SchedulerStats {
  int running = 0;
  int waiting = 0;
  uint64_t preemptions = 0;
  uint64_t prefix_query_tokens = 0;  // prompt tokens looked up
  uint64_t prefix_hit_tokens = 0;
};

// What a committed step means for one request.
struct TokenEvent {
  RequestId request;
  bool has_token = false;
  TokenId token;
  FinishReason finish = FinishReason::kNone;
  RowFault fault = RowFault::kNone;         // with kError
  int num_cached_tokens = 0;                // of the prompt
  int64_t admitted_at = 0;                  // what Schedule was told when it first ran
  const TokenLogprobs* logprobs = nullptr;  // of the token; null when not asked for
  // Of the prompt's tokens from this index on, in order; each of them comes once.
  std::span<const TokenLogprobs> prompt_logprobs;
  int first_prompt_logprob = 0;
};

class Scheduler {
 public:
  // `pool` must outlive this and hold at least one request of max_model_len.
  Scheduler(const SchedulerOptions& options, BlockPool& pool);

  // Takes a request into the waiting queue. InvalidArgument when the prompt leaves no room for a
  // token within max_model_len, or when it has rules and there are no slots for any;
  // ResourceExhausted when the queue is full.
  Status Submit(RequestSpec spec);

  // Ends a request wherever it is and frees what it holds at once; false when it is not known (it
  // may have finished). Gives no event.
  bool Cancel(RequestId request);

  // From now on a step in which requests decode takes at most so many prompt tokens, at least 1:
  // those that decode wait for them.
  void LimitPromptsBesideDecodes(int max_tokens);

  enum class Outcome {
    kLaunch,   // `plan` is a step to launch
    kNothing,  // no request can use a step now (none at all, or all wait for steps in flight)
    kRetire,   // blocks ran out: commit every step in flight, then call again to preempt
  };
  // A kLaunch plan counts as launched when this returns. Not to be called while
  // max_steps_in_flight steps are in flight. `now` is the caller's time, kept for the events of the
  // requests that begin to run, and for nothing else.
  Outcome Schedule(BatchPlan& plan, int64_t now = 0);

  // Takes the results of the oldest step in flight. Appends one event for each live request that
  // got a token or log-probabilities, or ended. The events point into `results`.
  void Commit(const StepResults& results, std::vector<TokenEvent>& events);

  int steps_in_flight() const { return steps_.size(); }
  bool idle() const { return requests_.empty(); }  // no request at all
  const Request* Find(RequestId request) const;
  SchedulerStats stats() const;
  // Checks the pool and that every block's references are exactly those of the running requests.
  Status CheckIntegrity() const;

 private:
  // A permanent row of the device.
  struct Row {
    Request* owner = nullptr;
    uint32_t generation = 0;  // owners so far
  };

  // scheduler.cc: the step's budget on running requests, and room for them.
  int TokensWanted(const Request& request) const;
  int TokensGiven(const Request& request, const BatchPlan& plan) const;
  bool NeedsBlock(const Request& request) const;
  int BlocksNeeded() const;
  void PreemptLast();
  bool IsHeld(const Request& request) const;
  int PromptTokensOfStep() const;
  void PlanRow(Request& request, BatchPlan& plan);
  void PlanMaskRefresh(const Request& request, BatchPlan& plan);
  void AddBlock(Request& request, BlockId block, BatchPlan& plan);
  void RememberStep(const BatchPlan& plan);

  // admission.cc: requests come in, get a row and blocks, and leave.
  bool Admit(Request& request, BatchPlan& plan);
  bool TakeBlocks(Request& request);
  void TakeRow(Request& request, BatchPlan& plan);
  RowJoin TakeRuleSlot(Request& request);
  void LeaveRow(Request& request);
  void End(Request& request);

  // prefix.cc: what a request shares with others.
  std::span<const TokenId> BlockTokens(const Request& request, int index) const;
  BlockHash HashOfBlock(Request& request, int index) const;
  void FindCachedBlocks(Request& request) const;
  void PublishBlocks(Request& request, int num_tokens);

  // commit.cc
  void TakeResult(Request& request, const LaunchedRow& launched, const RowResult& result,
                  std::span<const TokenLogprobs> logprobs, TokenEvent& event);

  // integrity.cc
  Status CheckBlocks() const;
  Status CheckRows() const;
  Status CheckRuleSlots() const;
  Status CheckCounts() const;

  int BlocksFor(int num_tokens) const {
    return (num_tokens + pool_.block_size() - 1) / pool_.block_size();
  }

  SchedulerOptions options_;
  BlockPool& pool_;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  RequestQueue waiting_;
  std::vector<Request*> running_;  // in the same order
  std::vector<Row> rows_;
  std::vector<RowId> free_rows_;
  RuleSlots rule_slots_;
  LaunchedSteps steps_;
  std::vector<PlannedRow> prompt_rows_;  // of the plan in the making; they follow its decode rows
  int num_held_ = 0;                     // running requests left out of the plan in the making
  int prompt_tokens_left_ = 0;           // that the plan in the making may still take
  int max_prompt_tokens_ = 0;            // of a step in which requests decode
  // The first waiting request found too few blocks, and none came free since: no use to look again.
  bool waits_for_blocks_ = false;
  int64_t now_ = 0;  // of the plan in the making
  uint64_t submitted_ = 0;
  uint64_t preemptions_ = 0;
  uint64_t prefix_query_tokens_ = 0;
  uint64_t prefix_hit_tokens_ = 0;
};

}  // namespace spry
