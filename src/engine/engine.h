// The engine: requests in, tokens out. One thread owns it and calls everything here but Check.
//
//   Submit -> waiting -> Step: schedule, launch, wait for the oldest step, commit -> events
//
// Step keeps up to run_ahead steps in flight. A steady step allocates nothing and takes no lock. A
// request that fails (NaN logits) ends alone; an error returned by Step means that the device is
// lost.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/sampling_params.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "engine/prompt_pace.h"
#include "kv/block_pool.h"
#include "runtime/model_runner.h"
#include "sched/scheduler.h"

namespace spry {

// kPriority lets requests say how urgent they are (sched/scheduler.h).
enum class SchedulingPolicy { kFcfs, kPriority };

struct EngineOptions {
  RunnerOptions runner;
  bool prefix_caching = true;                         // --no-enable-prefix-caching
  int max_waiting = 1 << 20;                          // requests in the queue beyond those running
  int long_prefill_threshold = 0;                     // --long-prefill-token-threshold
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;  // --scheduling-policy
  uint64_t seed = 0;                                  // of requests that bring none
};

struct GenerationRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::shared_ptr<TokenMask> mask;  // says what may follow, for instance a grammar; null: anything
  std::string cache_salt;           // requests share cached prefixes only within one salt
  int priority = 0;                 // lower values first; only 0 under kFcfs
};

class Engine {
 public:
  // Loads the model onto `device`.
  static Result<std::unique_ptr<Engine>> Create(std::unique_ptr<Device> device,
                                                const Checkpoint& checkpoint,
                                                const EngineOptions& options);

  // Whether Submit would take it, but for the queue and the room that the prompt leaves. Any thread
  // may ask.
  Status Check(const GenerationRequest& request) const;
  // One answer: sampling.n is 1 (engine/choices.h makes choices of a request). InvalidArgument
  // names the field, what it was and what it may be; ResourceExhausted when the queue is full. The
  // engine is as before then.
  Result<RequestId> Submit(GenerationRequest request);
  // Frees what the request holds at once; no event follows. False when it has already ended.
  bool Cancel(RequestId request);

  // One turn of the loop. The events are valid until the next call; none when nothing could run.
  // `now` comes back as the admitted_at of requests that begin to run in this turn.
  Result<std::span<const TokenEvent>> Step(int64_t now = 0);
  // Tokens of each step that the last turn launched.
  std::span<const int> launched_tokens() const { return launched_tokens_; }
  bool idle() const { return scheduler_->idle(); }

  // Forgets cached prefixes; true when none is left (none was in use).
  bool ResetPrefixCache() { return pool_->ResetPrefixCache(); }
  SchedulerStats stats() const { return scheduler_->stats(); }
  // Share of the KV blocks that running requests hold.
  double kv_usage() const;
  const MemoryPlan& memory_plan() const { return runner_->memory_plan(); }
  const Program& program() const { return runner_->program(); }
  const Device& device() const { return *device_; }
  Status CheckIntegrity() const { return scheduler_->CheckIntegrity(); }
  ModelRunner& runner() { return *runner_; }  // logits, for tests and perplexity

 private:
  Engine() = default;
  Status ValidatePrompt(const std::vector<TokenId>& prompt) const;

  std::unique_ptr<Device> device_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<PromptPace> pace_;
  std::vector<TokenId> eos_tokens_;
  SchedulingPolicy policy_ = SchedulingPolicy::kFcfs;
  uint64_t seed_ = 0;
  uint64_t next_request_ = 0;
  BatchPlan plan_;
  std::vector<TokenEvent> events_;
  std::vector<int> launched_tokens_;
};

}  // namespace spry
