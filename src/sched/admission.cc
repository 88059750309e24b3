#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "sched/scheduler.h"

namespace spry {

Status Scheduler::Submit(RequestSpec spec) {
  CHECK(!spec.prompt.empty() && spec.params.max_outputs >= 0);
  CHECK(spec.params.num_prompt_logprobs < 0 || options_.max_targets > 0);
  const int num_prompt = static_cast<int>(spec.prompt.size());
  const int longest = options_.max_model_len - std::min(spec.params.max_outputs, 1);
  if (num_prompt > longest) {
    return InvalidArgument(fmt::format(
        "the prompt has {} tokens; with a max_model_len of {} it may have at most {}: shorten it",
        num_prompt, options_.max_model_len, longest));
  }
  if (spec.rules != nullptr && rule_slots_.size() == 0) {
    return InvalidArgument(
        "the request has penalties, logit_bias, allowed_token_ids or bad_words, and "
        "--max-rule-slots is 0: raise it");
  }
  if (waiting_.size() >= options_.max_waiting) {
    return ResourceExhausted(
        fmt::format("{} requests are waiting, as many as may: try again later", waiting_.size()));
  }

  auto request = std::make_unique<Request>();
  request->id = spec.id;
  request->num_prompt = num_prompt;
  request->tokens = std::move(spec.prompt);
  request->params = spec.params;
  request->params.max_outputs =
      std::min(spec.params.max_outputs, options_.max_model_len - num_prompt);
  request->root = pool_.Root(spec.cache_salt);
  request->holds = spec.rules != nullptr && spec.rules->mask != nullptr;
  request->rules = std::move(spec.rules);
  request->priority = spec.priority;
  request->arrival = submitted_++;
  waiting_.Insert(*request);
  if (waiting_.front() == request.get()) waits_for_blocks_ = false;
  const bool is_new = requests_.emplace(spec.id, std::move(request)).second;
  CHECK(is_new);
  return {};
}

bool Scheduler::Cancel(RequestId request) {
  const auto found = requests_.find(request);
  if (found == requests_.end()) return false;
  End(*found->second);
  return true;
}

// Makes a waiting request a running one, if a row, its blocks, a rule slot where it has rules, and
// the budget for one token are there. Held requests will want theirs again.
bool Scheduler::Admit(Request& request, BatchPlan& plan) {
  if (free_rows_.empty() || plan.num_tokens + num_held_ >= options_.max_step_tokens) return false;
  if (prompt_tokens_left_ == 0) return false;
  if (OwesTargets(request) && plan.num_targets == options_.max_targets) return false;
  if (request.rules != nullptr && !rule_slots_.CanTake(steps_.num_committed())) return false;
  const int num_writes = BlocksFor(static_cast<int>(request.tokens.size()));
  if (static_cast<int>(plan.block_writes.size()) + num_writes > options_.max_block_writes) {
    return false;
  }
  if (waits_for_blocks_) return false;

  const int max_tokens = request.num_prompt + request.params.max_outputs;
  request.tokens.reserve(max_tokens);
  request.blocks.reserve(BlocksFor(max_tokens));
  request.hashes.reserve(BlocksFor(max_tokens));
  waits_for_blocks_ = !TakeBlocks(request);
  if (waits_for_blocks_) return false;
  TakeRow(request, plan);
  return true;
}

// Takes the blocks of all known tokens, as many as possible from the prefix cache. False, and no
// block taken, when the pool has not enough for them and one more token (where one may come).
bool Scheduler::TakeBlocks(Request& request) {
  FindCachedBlocks(request);
  const int num_cached = static_cast<int>(request.blocks.size());
  const auto num_cached_free = std::ranges::count_if(
      request.blocks, [this](BlockId block) { return pool_.references(block) == 0; });
  const int num_tokens = static_cast<int>(request.tokens.size());
  const int num_soon = std::min(num_tokens + 1, request.num_prompt + request.params.max_outputs);
  if (BlocksFor(num_soon) - num_cached > pool_.num_free() - num_cached_free) {
    request.blocks.clear();
    return false;
  }
  for (BlockId block : request.blocks) pool_.Retain(block);
  for (int i = num_cached; i < BlocksFor(num_tokens); ++i) {
    request.blocks.push_back(*pool_.Allocate());
  }
  request.num_published = num_cached;
  return true;
}

void Scheduler::TakeRow(Request& request, BatchPlan& plan) {
  waiting_.Remove(request);
  running_.insert(std::ranges::upper_bound(running_, &request, ComesFirst()), &request);
  request.state = RequestState::kRunning;
  request.row = free_rows_.back();
  free_rows_.pop_back();
  Row& row = rows_[request.row.value()];
  row.owner = &request;
  ++row.generation;

  request.prefill_length = static_cast<int>(request.tokens.size());
  request.num_launched = request.num_published * pool_.block_size();
  if (!request.admitted_before) {
    request.admitted_before = true;
    request.num_cached_tokens = request.num_launched;
    request.admitted_at = now_;
    const bool looked = pool_.prefix_caching() && !OwesTargets(request);
    if (looked) prefix_query_tokens_ += request.num_prompt;
    prefix_hit_tokens_ += request.num_cached_tokens;
  }

  plan.joins.push_back(request.rules == nullptr ? RowJoin() : TakeRuleSlot(request));
  RowJoin& join = plan.joins.back();
  join.row = request.row;
  join.num_outputs = request.num_outputs();
  join.params = &request.params;
  for (int i = 0; i < static_cast<int>(request.blocks.size()); ++i) {
    plan.block_writes.push_back({.row = request.row, .index = i, .block = request.blocks[i]});
  }
}

// A join that says what the slot's image is to be.
RowJoin Scheduler::TakeRuleSlot(Request& request) {
  request.rule_slot = rule_slots_.Take();
  rule_slots_.NoteCopy(request.rule_slot, steps_.num_launched());
  const std::span<const TokenId> tokens(request.tokens);
  return {.rule_slot = request.rule_slot,
          .rules = request.rules.get(),
          .prompt = tokens.first(request.num_prompt),
          .outputs = tokens.subspan(request.num_prompt)};
}

// Takes row and blocks from a running request; results still on their way become stale.
void Scheduler::LeaveRow(Request& request) {
  // Last to first, so that the tail of a cached prefix is evicted before its head.
  for (size_t i = request.blocks.size(); i-- > 0;) pool_.Release(request.blocks[i]);
  request.blocks.clear();
  request.num_published = 0;
  request.num_launched = 0;
  request.state = RequestState::kWaiting;
  rows_[request.row.value()].owner = nullptr;
  free_rows_.push_back(request.row);
  if (request.rule_slot >= 0) rule_slots_.Release(request.rule_slot);
  request.rule_slot = -1;
  running_.erase(std::ranges::find(running_, &request));
  waits_for_blocks_ = false;
}

// Ends a request wherever it is, and with it the object.
void Scheduler::End(Request& request) {
  if (request.state == RequestState::kRunning) {
    LeaveRow(request);
  } else {
    waiting_.Remove(request);
    waits_for_blocks_ = false;  // another request may be first now
  }
  requests_.erase(requests_.find(request.id));
}

}  // namespace spry
