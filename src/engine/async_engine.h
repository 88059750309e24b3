// An Engine on a thread of its own. One other thread (the server's I/O thread) submits, cancels and
// takes outputs; the two meet in lock-free queues. Idle means asleep.
//
//   I/O thread   Submit, Cancel --commands--> engine thread: Engine::Step in a loop
//                TakeOutputs    <--outputs---, and output_event() becomes readable once a step
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace spry {

// Names a submitted request; never used twice.
using Ticket = Id<struct TicketTag, uint64_t>;

// What one step meant for one request: TokenEvent with its data copied out of the device's ring.
struct Output {
  Ticket ticket;
  bool has_token = false;
  TokenId token;
  FinishReason finish = FinishReason::kNone;
  int num_cached_tokens = 0;
  std::unique_ptr<TokenLogprobs> logprobs;          // when asked for
  std::vector<TokenLogprobs> prompt_logprobs;       // of prompt positions from first_prompt_position
  int first_prompt_position = 0;
  std::string error;                                // with kError: what happened
};

struct AsyncEngineOptions {
  int max_queue = 256;  // requests waiting beyond those running; more are refused
};

// For /metrics and /health; each value is whole, the set is of nearly one moment.
struct EngineStatus {
  SchedulerStats scheduler;
  double kv_usage = 0;           // share of KV blocks in use
  int64_t step_age_nanos = 0;    // since the step in work began; 0: none
  bool lost = false;             // the device failed; every request has been ended with kError
};

class AsyncEngine {
 public:
  static std::unique_ptr<AsyncEngine> Start(std::unique_ptr<Engine> engine,
                                            const AsyncEngineOptions& options);
  ~AsyncEngine();  // ends what runs, without outputs

  // Checks the request at once: InvalidArgument as Engine::Submit; ResourceExhausted when the queue
  // is full; Unavailable when the device is lost. Outputs follow, the last with a finish reason.
  Result<Ticket> Submit(GenerationRequest request);
  // No output follows, save those already taken by TakeOutputs' caller. Unknown tickets: nothing.
  void Cancel(Ticket ticket);
  // Forgets cached prefixes between two steps; the answer comes by the next TakeOutputs.
  void ResetPrefixCache();

  // Appends what has come since the last call.
  void TakeOutputs(std::vector<Output>& outputs);
  // An eventfd that is readable when there is something to take.
  int output_event() const;

  EngineStatus status() const;
  const MemoryPlan& memory_plan() const;
};

}  // namespace spry
