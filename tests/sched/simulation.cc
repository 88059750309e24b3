#include "tests/sched/simulation.h"

#include <fmt/format.h>

namespace spry::testing {

int FewestBlockWrites(const SchedulerOptions& options, const BlockPoolOptions& pool) {
  const int blocks = (options.max_model_len + pool.block_size - 1) / pool.block_size;
  return blocks + options.max_rows;
}

Simulation::Simulation(const BlockPoolOptions& pool, const SchedulerOptions& options)
    : options_(options),
      pool_(pool),
      scheduler_(options_, pool_),
      device_({.max_rows = options.max_rows,
               .num_blocks = pool.num_blocks,
               .block_size = pool.block_size,
               .max_model_len = options.max_model_len,
               .max_rule_slots = options.max_rule_slots}),
      max_prompt_tokens_(options.max_step_tokens) {}

void Simulation::LimitPromptsBesideDecodes(int max_tokens) {
  max_prompt_tokens_ = max_tokens;
  fair_ = false;
  scheduler_.LimitPromptsBesideDecodes(max_tokens);
}

int Simulation::PromptTokensOfStep() const {
  for (const auto& [id, record] : records_) {
    const Request* request = scheduler_.Find(id);
    if (request == nullptr || request->state != RequestState::kRunning) continue;
    if (request->num_launched >= request->prefill_length) return max_prompt_tokens_;
  }
  return options_.max_step_tokens;
}

Status Simulation::Submit(RequestSpec spec) {
  Record record{.expected = {}, .num_prompt = static_cast<int>(spec.prompt.size()), .outputs = {}};
  record.judges = spec.params.num_prompt_logprobs >= 0;
  fair_ &= !record.judges && spec.priority == 0;
  const RequestId id = spec.id;
  const bool fits = record.num_prompt <= options_.max_model_len;
  if (fits) record.expected = RunAlone(spec, options_.max_model_len);
  SPRY_RETURN_IF_ERROR(scheduler_.Submit(std::move(spec)));
  records_[id] = std::move(record);
  return scheduler_.CheckIntegrity();
}

Status Simulation::Cancel(RequestId request) {
  Record& record = records_.at(request);
  if (scheduler_.Cancel(request) != record.live) {
    return Internal(fmt::format("cancel of request {} misjudges it", request.value()));
  }
  record.live = false;
  if (scheduler_.Find(request) != nullptr) return Internal("a cancelled request is still known");
  return scheduler_.CheckIntegrity();
}

Result<Scheduler::Outcome> Simulation::Step() {
  const int num_free = pool_.num_free();
  const SchedulerStats before = scheduler_.stats();
  step_prompt_tokens_ = PromptTokensOfStep();
  const Scheduler::Outcome outcome = scheduler_.Schedule(plan_);
  if (scheduler_.stats().preemptions > before.preemptions) {
    step_prompt_tokens_ = options_.max_step_tokens;  // it may have been the one that decoded
  }
  switch (outcome) {
    case Scheduler::Outcome::kLaunch:
      SPRY_RETURN_IF_ERROR(CheckPlan());
      device_.Launch(plan_);
      break;
    case Scheduler::Outcome::kNothing:
      SPRY_RETURN_IF_ERROR(CheckNothingChanged(num_free, before));
      if (scheduler_.steps_in_flight() == 0 && !scheduler_.idle()) {
        return Internal("nothing is in flight, a request is there, and nothing is launched");
      }
      break;
    case Scheduler::Outcome::kRetire:
      SPRY_RETURN_IF_ERROR(CheckNothingChanged(num_free, before));
      if (scheduler_.steps_in_flight() == 0) return Internal("there is no step to retire");
      break;
  }
  SPRY_RETURN_IF_ERROR(scheduler_.CheckIntegrity());
  return outcome;
}

Status Simulation::Commit() {
  results_ = device_.Retire();
  events_.clear();
  scheduler_.Commit({.rows = results_.rows, .logprobs = results_.logprobs}, events_);
  for (const TokenEvent& event : events_) SPRY_RETURN_IF_ERROR(CheckEvent(event));
  return scheduler_.CheckIntegrity();
}

Status Simulation::Drain() {
  while (!scheduler_.idle()) {
    bool launched = false;
    while (can_launch()) {
      SPRY_ASSIGN_OR_RETURN(const Scheduler::Outcome outcome, Step());
      launched = outcome == Scheduler::Outcome::kLaunch;
      if (!launched) break;
    }
    if (scheduler_.steps_in_flight() > 0) SPRY_RETURN_IF_ERROR(Commit());
  }
  while (scheduler_.steps_in_flight() > 0) SPRY_RETURN_IF_ERROR(Commit());
  for (const auto& [id, record] : records_) {
    if (record.live) return Internal(fmt::format("request {} was lost", id.value()));
  }
  if (pool_.num_free() != pool_.num_blocks()) return Internal("blocks are lost");
  return {};
}

Status Simulation::CheckPlan() const {
  int num_tokens = 0;
  int num_prompt_tokens = 0;
  int num_samples = 0;
  int num_targets = 0;
  bool after_prompt = false;
  std::set<RowId> rows;
  for (const PlannedRow& row : plan_.rows) {
    num_tokens += row.num_tokens;
    num_samples += row.num_samples;
    num_targets += row.num_samples - (row.draws ? 1 : 0);
    if (row.num_samples > row.num_tokens) return Internal("more samples than tokens");
    if (!rows.insert(row.row).second) return Internal("a row is planned twice");
    if (row.num_tokens <= 0) return Internal("a row computes nothing");
    if (row.decode) {
      if (after_prompt) return Internal("a decode row follows a prompt row");
      if (row.num_tokens != 1 || row.num_samples != 1 || !row.draws || row.tokens != nullptr) {
        return Internal("a decode row is not one sampled token of the device's own");
      }
    } else {
      after_prompt = true;
      num_prompt_tokens += row.num_tokens;
      const int threshold = options_.long_prefill_threshold;
      if (threshold > 0 && row.num_tokens > threshold) return Internal("a chunk is too long");
    }
  }
  if (num_tokens != plan_.num_tokens || num_tokens > options_.max_step_tokens) {
    return Internal(fmt::format("the step has {} tokens, says {}, may have {}", num_tokens,
                                plan_.num_tokens, options_.max_step_tokens));
  }
  if (num_prompt_tokens != plan_.num_prompt_tokens || num_prompt_tokens > step_prompt_tokens_) {
    return Internal(fmt::format("the step has {} prompt tokens, says {}, may have {}",
                                num_prompt_tokens, plan_.num_prompt_tokens, step_prompt_tokens_));
  }
  if (num_samples != plan_.num_samples) return Internal("the count of samples is wrong");
  if (num_targets != plan_.num_targets || num_targets > options_.max_targets) {
    return Internal(fmt::format("the step judges {} tokens, says {}, may judge {}", num_targets,
                                plan_.num_targets, options_.max_targets));
  }
  if (static_cast<int>(plan_.block_writes.size()) > options_.max_block_writes) {
    return Internal("too many block writes");
  }
  for (const RowJoin& join : plan_.joins) {
    if (!rows.contains(join.row)) return Internal("a row joins and computes nothing");
  }
  return CheckNobodyStarves(rows);
}

// A running request computes in every step (one with a mask in every step that finds its outputs
// known), until all that it may give is on its way; or, where prompts are judged or some come
// first, until the step's budget is spent on those before it. A prompt also waits when its step's
// share of prompts is spent.
Status Simulation::CheckNobodyStarves(const std::set<RowId>& planned) const {
  for (const auto& [id, record] : records_) {
    const Request* request = scheduler_.Find(id);
    if (request == nullptr || request->state != RequestState::kRunning) continue;
    const bool reads = request->num_launched < request->prefill_length;
    if (reads && plan_.num_prompt_tokens >= max_prompt_tokens_) continue;
    const bool spent = plan_.num_tokens == options_.max_step_tokens ||
                       (OwesTargets(*request) && plan_.num_targets == options_.max_targets);
    if (!fair_ && spent && !PassedOver(*request, planned)) continue;
    const int num_outputs = request->num_outputs() + request->outputs_in_flight;
    const bool held = request->holds && request->outputs_in_flight > 0;
    if (!held && !planned.contains(request->row) && num_outputs < request->params.max_outputs) {
      return Internal(fmt::format("running request {} got nothing", id.value()));
    }
  }
  return {};
}

// Whether the step computes for one that comes behind `request`, which got nothing. Where prompts
// are judged, others may have use for what it has not.
bool Simulation::PassedOver(const Request& request, const std::set<RowId>& planned) const {
  if (OwesTargets(request)) return false;
  for (const auto& [id, record] : records_) {
    const Request* other = scheduler_.Find(id);
    if (other == nullptr || other->state != RequestState::kRunning) continue;
    if (planned.contains(other->row) && ComesFirst()(&request, other)) return true;
  }
  return false;
}

Status Simulation::CheckNothingChanged(int num_free, const SchedulerStats& before) const {
  const SchedulerStats after = scheduler_.stats();
  if (!plan_.rows.empty() || !plan_.joins.empty() || !plan_.block_writes.empty() ||
      !plan_.mask_refreshes.empty() || plan_.num_tokens != 0) {
    return Internal("there is no step, but its plan is not empty");
  }
  if (pool_.num_free() != num_free || after.running != before.running ||
      after.waiting != before.waiting || after.preemptions != before.preemptions) {
    return Internal("there is no step, but something changed");
  }
  return {};
}

Status Simulation::CheckEvent(const TokenEvent& event) {
  Record& record = records_.at(event.request);
  const auto wrong = [&](std::string_view what) {
    return Internal(fmt::format("request {}, output {}: {}", event.request.value(),
                                record.outputs.size(), what));
  };
  if (!record.live) return wrong("an event after its end");
  if (event.num_cached_tokens >= record.num_prompt ||
      event.num_cached_tokens % pool_.block_size() != 0) {
    return wrong(fmt::format("{} tokens can't be cached", event.num_cached_tokens));
  }
  if (event.has_token) {
    const size_t index = record.outputs.size();
    const std::vector<TokenId>& expected = record.expected.outputs;
    if (index >= expected.size()) return wrong("a token too many");
    if (event.token != expected[index]) {
      return wrong(
          fmt::format("token {}, alone it is {}", event.token.value(), expected[index].value()));
    }
    record.outputs.push_back(event.token);
  }
  SPRY_RETURN_IF_ERROR(CheckPromptLogprobs(event, record));
  if (event.finish == FinishReason::kNone) return {};
  record.live = false;
  if (event.finish != record.expected.finish) return wrong("ends otherwise than alone");
  if (record.outputs.size() != record.expected.outputs.size()) return wrong("ends too early");
  return {};
}

// Each comes once, in order, and all of them before the first output.
Status Simulation::CheckPromptLogprobs(const TokenEvent& event, Record& record) const {
  const auto wrong = [&](std::string_view what) {
    return Internal(fmt::format("request {}, prompt token {}: {}", event.request.value(),
                                record.num_judged + 1, what));
  };
  for (size_t i = 0; i < event.prompt_logprobs.size(); ++i) {
    if (!record.judges) return wrong("nobody asked for it");
    const int index = event.first_prompt_logprob + static_cast<int>(i);
    if (index != record.num_judged + 1 || index >= record.num_prompt) return wrong("out of turn");
    const TokenLogprobs& expected = record.expected.prompt_logprobs[record.num_judged++];
    const TokenLogprobs& found = event.prompt_logprobs[i];
    if (found.rank != expected.rank || found.chosen.token != expected.chosen.token) {
      return wrong("judged otherwise than alone");
    }
  }
  const bool goes_on = event.has_token || event.finish == FinishReason::kLength;
  if (record.judges && goes_on && record.num_judged != record.num_prompt - 1) {
    return wrong("missing");
  }
  return {};
}

}  // namespace spry::testing
