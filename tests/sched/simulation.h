// A scheduler, its pool and a fake device in one step loop, with every promise checked at every
// move: plans keep their limits, a step given up leaves nothing behind, tokens are those of the
// request run alone. A broken promise comes back as an Internal status.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "kv/block_pool.h"
#include "sched/scheduler.h"
#include "tests/sched/fake_device.h"

namespace spry::testing {

// The smallest max_block_writes that the scheduler takes.
int FewestBlockWrites(const SchedulerOptions& options, const BlockPoolOptions& pool);

class Simulation {
 public:
  Simulation(const BlockPoolOptions& pool, const SchedulerOptions& options);

  Status Submit(RequestSpec spec);  // the scheduler's own answer
  Status Cancel(RequestId request);
  // Plans a step and, if there is one, launches it.
  Result<Scheduler::Outcome> Step();
  // Retires the oldest step in flight.
  Status Commit();
  // Steps at full depth, as an engine does, until no request is left and all blocks are free.
  Status Drain();
  void LimitPromptsBesideDecodes(int max_tokens);

  const Scheduler& scheduler() const { return scheduler_; }
  BlockPool& pool() { return pool_; }
  const BatchPlan& plan() const { return plan_; }
  const std::vector<TokenEvent>& events() const { return events_; }  // of the last commit
  bool can_launch() const { return scheduler_.steps_in_flight() < options_.max_steps_in_flight; }
  const std::vector<TokenId>& outputs(RequestId request) const {
    return records_.at(request).outputs;
  }

 private:
  struct Record {
    Expected expected;
    int num_prompt = 0;
    int num_judged = 0;  // of the prompt's tokens, those whose log-probabilities came
    bool judges = false;
    std::vector<TokenId> outputs;
    bool live = true;
  };

  int PromptTokensOfStep() const;
  Status CheckPlan() const;
  Status CheckNobodyStarves(const std::set<RowId>& planned) const;
  bool PassedOver(const Request& request, const std::set<RowId>& planned) const;
  Status CheckNothingChanged(int num_free, const SchedulerStats& before) const;
  Status CheckEvent(const TokenEvent& event);
  Status CheckPromptLogprobs(const TokenEvent& event, Record& record) const;

  SchedulerOptions options_;
  BlockPool pool_;
  Scheduler scheduler_;
  FakeDevice device_;
  BatchPlan plan_;
  FakeDevice::Results results_;
  std::vector<TokenEvent> events_;
  std::map<RequestId, Record> records_;
  int max_prompt_tokens_;       // of a step in which requests decode
  int step_prompt_tokens_ = 0;  // of the step of `plan_`, as many as may be
  bool fair_ = true;            // nobody may take from a running request what it had before
};

}  // namespace spry::testing
