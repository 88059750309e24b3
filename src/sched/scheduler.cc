#include "sched/scheduler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace spry {
namespace {

void Reset(BatchPlan& plan, const SchedulerOptions& options) {
  plan.num_tokens = 0;
  plan.num_prompt_tokens = 0;
  plan.num_samples = 0;
  plan.num_targets = 0;
  plan.rows.clear();
  plan.joins.clear();
  plan.mask_refreshes.clear();
  plan.block_writes.clear();
  plan.rows.reserve(options.max_rows);
  plan.joins.reserve(options.max_rows);
  plan.mask_refreshes.reserve(options.max_rule_slots);
  plan.block_writes.reserve(options.max_block_writes);
}

// From here on the device feeds the row itself.
bool Decodes(const Request& request) { return request.num_launched >= request.prefill_length; }

// The first position of the prompt that the next chunk judges, if it comes so far.
int FirstTarget(const Request& request) {
  return std::max(request.num_launched, request.num_judged);
}

// How many it judges when it has `n` tokens: all whose successor is in the prompt.
int TargetsIn(const Request& request, int n) {
  if (request.params.num_prompt_logprobs < 0) return 0;
  const int end = std::min(request.num_launched + n, request.num_prompt - 1);
  return std::max(0, end - FirstTarget(request));
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, BlockPool& pool)
    : options_(options),
      pool_(pool),
      rows_(options.max_rows),
      rule_slots_(options.max_rule_slots),
      steps_(options.max_steps_in_flight, options.max_rows) {
  CHECK(options.max_rows > 0 && options.max_step_tokens > 0 && options.max_steps_in_flight > 0);
  CHECK(options.long_prefill_threshold >= 0 && options.max_targets >= 0);
  CHECK(BlocksFor(options.max_model_len) <= pool.num_blocks());
  CHECK(BlocksFor(options.max_model_len) + options.max_rows <= options.max_block_writes);
  if (options_.long_prefill_threshold == 0) {
    options_.long_prefill_threshold = std::numeric_limits<int>::max();
  }
  max_prompt_tokens_ = options.max_step_tokens;
  running_.reserve(options.max_rows);
  prompt_rows_.reserve(options.max_rows);
  for (int row = options.max_rows; row-- > 0;) free_rows_.push_back(RowId(row));
}

void Scheduler::LimitPromptsBesideDecodes(int max_tokens) {
  CHECK(max_tokens > 0);
  max_prompt_tokens_ = max_tokens;
}

Scheduler::Outcome Scheduler::Schedule(BatchPlan& plan, int64_t now) {
  CHECK(!steps_.full());
  now_ = now;
  Reset(plan, options_);
  prompt_rows_.clear();
  num_held_ = 0;

  bool preempted = false;
  while (BlocksNeeded() > pool_.num_free()) {
    // A preempted request is computed again from its tokens, so all of them must be known.
    if (steps_in_flight() > 0) return Outcome::kRetire;
    PreemptLast();
    preempted = true;
  }

  prompt_tokens_left_ = PromptTokensOfStep();
  for (Request* request : running_) PlanRow(*request, plan);
  while (!preempted && !waiting_.empty()) {
    Request& first = *waiting_.front();
    if (!Admit(first, plan)) break;
    PlanRow(first, plan);
  }
  if (plan.num_tokens == 0) return Outcome::kNothing;

  plan.rows.insert(plan.rows.end(), prompt_rows_.begin(), prompt_rows_.end());
  RememberStep(plan);
  return Outcome::kLaunch;
}

// Tokens that the request could use now; 0 when its outputs, those in flight included, reach its
// limit. Submit cut that limit to what the model's length leaves.
int Scheduler::TokensWanted(const Request& request) const {
  if (!Decodes(request)) {
    return std::min(request.prefill_length - request.num_launched, options_.long_prefill_threshold);
  }
  if (IsHeld(request)) return 0;
  return request.num_outputs() + request.outputs_in_flight < request.params.max_outputs ? 1 : 0;
}

// Its next token waits for what the mask says about the one in flight.
bool Scheduler::IsHeld(const Request& request) const {
  return request.holds && request.outputs_in_flight > 0;
}

// Whether the next position lies beyond the request's blocks. Only a decode row can get there: the
// blocks of all known tokens are taken at admission.
bool Scheduler::NeedsBlock(const Request& request) const {
  return request.num_launched == static_cast<int>(request.blocks.size()) * pool_.block_size();
}

// Blocks that running requests need in this step, were the budget enough for all.
int Scheduler::BlocksNeeded() const {
  return static_cast<int>(std::ranges::count_if(running_, [this](const Request* request) {
    return NeedsBlock(*request) && TokensWanted(*request) > 0;
  }));
}

// The last of the running requests goes back to the queue; what it computed may survive in the
// prefix cache.
void Scheduler::PreemptLast() {
  Request& request = *running_.back();
  CHECK(request.outputs_in_flight == 0);
  LeaveRow(request);
  waiting_.Insert(request);
  ++preemptions_;
}

int Scheduler::PromptTokensOfStep() const {
  const bool decodes = std::ranges::any_of(running_, [](const Request* r) { return Decodes(*r); });
  return decodes ? max_prompt_tokens_ : options_.max_step_tokens;
}

// What the budget leaves of it: tokens, and among them those to be judged.
int Scheduler::TokensGiven(const Request& request, const BatchPlan& plan) const {
  int n = std::min(TokensWanted(request), options_.max_step_tokens - plan.num_tokens);
  if (!Decodes(request)) n = std::min(n, prompt_tokens_left_);
  const int targets_left = options_.max_targets - plan.num_targets;
  if (TargetsIn(request, n) <= targets_left) return n;
  return FirstTarget(request) + targets_left - request.num_launched;
}

// Gives a running request what it wants, as far as the budget goes.
void Scheduler::PlanRow(Request& request, BatchPlan& plan) {
  const int n = TokensGiven(request, plan);
  num_held_ += IsHeld(request);
  if (n == 0) return;
  const bool decode = Decodes(request);
  const int num_targets = TargetsIn(request, n);
  PlannedRow& row = (decode ? plan.rows : prompt_rows_).emplace_back();
  row.row = request.row;
  row.start = request.num_launched;
  row.num_tokens = n;
  row.decode = decode;
  row.draws = decode || request.num_launched + n == request.prefill_length;
  row.num_samples = num_targets + (row.draws ? 1 : 0);
  if (decode) {
    if (NeedsBlock(request)) AddBlock(request, *pool_.Allocate(), plan);
    if (request.holds) PlanMaskRefresh(request, plan);
  } else {
    prompt_tokens_left_ -= n;
    plan.num_prompt_tokens += n;
    row.tokens = request.tokens.data() + request.num_launched;
  }
  request.num_launched += n;
  plan.num_tokens += n;
  plan.num_samples += row.num_samples;
  plan.num_targets += num_targets;
  if (row.draws) ++request.outputs_in_flight;
  // Known tokens can be hit from this very step on: each layer writes KV before attention reads it.
  if (!decode) PublishBlocks(request, request.num_launched);
}

// The join has written what may follow the outputs known then.
void Scheduler::PlanMaskRefresh(const Request& request, BatchPlan& plan) {
  plan.mask_refreshes.push_back({.rule_slot = request.rule_slot,
                                 .rules = request.rules.get(),
                                 .outputs = std::span(request.tokens).subspan(request.num_prompt)});
  rule_slots_.NoteCopy(request.rule_slot, steps_.num_launched());
}

void Scheduler::AddBlock(Request& request, BlockId block, BatchPlan& plan) {
  const int index = static_cast<int>(request.blocks.size());
  request.blocks.push_back(block);
  plan.block_writes.push_back({.row = request.row, .index = index, .block = block});
}

void Scheduler::RememberStep(const BatchPlan& plan) {
  std::vector<LaunchedRow>& step = steps_.Push();
  for (const PlannedRow& row : plan.rows) {
    step.push_back({.row = row.row,
                    .generation = rows_[row.row.value()].generation,
                    .num_samples = row.num_samples,
                    .draws = row.draws});
  }
}

const Request* Scheduler::Find(RequestId request) const {
  const auto found = requests_.find(request);
  return found == requests_.end() ? nullptr : found->second.get();
}

SchedulerStats Scheduler::stats() const {
  return {.running = static_cast<int>(running_.size()),
          .waiting = waiting_.size(),
          .preemptions = preemptions_,
          .prefix_query_tokens = prefix_query_tokens_,
          .prefix_hit_tokens = prefix_hit_tokens_};
}

}  // namespace spry
