// An Engine on a thread of its own. One other thread (the server's I/O thread) submits, cancels and
// takes outputs; the two meet in lock-free queues. Idle means asleep.
//
//   I/O thread   Submit, Cancel --commands--> engine thread: Engine::Step in a loop
//                TakeOutputs    <--outputs---, and output_event() becomes readable once a step
//
// An engine that is faster than the other thread waits for it: outputs of a few steps may be
// unread, no more.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <concurrentqueue/concurrentqueue.h>

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
  int64_t admitted_at = 0;  // steady clock: when its first step was scheduled; 0: it never was
  std::unique_ptr<TokenLogprobs> logprobs;     // when asked for
  std::vector<TokenLogprobs> prompt_logprobs;  // of prompt positions from first_prompt_position
  int first_prompt_position = 0;
  RowFault fault = RowFault::kNone;  // with kError: kNothingAllowed is the request's
  std::string error;                 // with kError: what happened
};

struct AsyncEngineOptions {
  int max_live = 256;  // requests running or waiting; more are refused
};

// Steps by the tokens they computed: the count of bucket i is of those with at most kMost[i] that
// fit no bucket before it; the last bucket has no limit.
struct StepSizes {
  static constexpr std::array<int, 13> kMost = {1,   8,    16,   32,   64,   128,  256,
                                                512, 1024, 2048, 4096, 8192, 16384};
  std::array<uint64_t, kMost.size() + 1> counts{};
  uint64_t tokens = 0;  // of all of them
};

// For /metrics and /health; each value is whole, the set is of nearly one moment.
struct EngineStatus {
  SchedulerStats scheduler;
  StepSizes steps;
  double kv_usage = 0;         // share of KV blocks in use
  int64_t step_age_nanos = 0;  // since the step in work began; 0: none
  bool lost = false;           // the device failed; every request has been ended with kError
};

class AsyncEngine {
 public:
  static Result<std::unique_ptr<AsyncEngine>> Start(std::unique_ptr<Engine> engine,
                                                    const AsyncEngineOptions& options);
  // Ends what runs, without outputs.
  ~AsyncEngine();
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  // Checks the request at once: InvalidArgument as Engine::Submit; ResourceExhausted when as many
  // wait as may; Unavailable when the device is lost. Outputs follow, the last with a finish
  // reason.
  Result<Ticket> Submit(GenerationRequest request);
  // Outputs on their way may still come. False for a ticket whose last output has been taken.
  bool Cancel(Ticket ticket);
  // Forgets cached prefixes between two steps. One output follows: kStop when none is left, kError
  // when running requests hold some.
  Ticket ResetPrefixCache();

  // Appends what has come since the last call, and nothing that comes meanwhile.
  void TakeOutputs(std::vector<Output>& outputs);
  // An eventfd that becomes readable when there is something to take; TakeOutputs resets it.
  int output_event() const { return output_event_; }
  // Tickets whose last output has not been taken.
  int live() const { return static_cast<int>(live_.size()); }

  EngineStatus status() const;
  const MemoryPlan& memory_plan() const { return engine_->memory_plan(); }

 private:
  struct Command {
    enum class Kind { kSubmit, kCancel, kReset, kStop } kind = Kind::kStop;
    Ticket ticket;
    std::unique_ptr<GenerationRequest> request;
  };
  // What the engine thread tells others between steps.
  struct Published {
    std::atomic<int> running{0}, waiting{0};
    std::atomic<uint64_t> preemptions{0}, prefix_query_tokens{0}, prefix_hit_tokens{0};
    std::array<std::atomic<uint64_t>, StepSizes::kMost.size() + 1> steps{};
    std::atomic<uint64_t> step_tokens{0};
    std::atomic<double> kv_usage{0};
    std::atomic<int64_t> step_began{0};
    std::atomic<bool> lost{false};
  };

  AsyncEngine(std::unique_ptr<Engine> engine, const AsyncEngineOptions& options, int output_event);
  Ticket Send(Command command);
  void Wake();

  // The engine thread's.
  void Run();
  bool TakeCommands();
  void Take(const TokenEvent& event);
  void Give(Output output);
  bool MustWaitForReader() const { return unread_ >= max_unread_; }
  void LoseDevice(const Status& why);
  void CountSteps();
  void Publish();

  const std::unique_ptr<Engine> engine_;
  const AsyncEngineOptions options_;
  const int output_event_;
  moodycamel::ConcurrentQueue<Command> commands_;
  moodycamel::ConcurrentQueue<Output> outputs_;
  std::atomic<uint32_t> wakes_{0};  // what the engine thread sleeps on
  const int max_unread_;
  std::atomic<int> unread_{0};  // outputs given and not taken
  Published published_;

  // The other thread's.
  uint64_t next_ticket_ = 0;
  std::unordered_set<Ticket> live_;

  // The engine thread's.
  std::unordered_map<RequestId, Ticket> tickets_;
  std::unordered_map<Ticket, RequestId> requests_;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace spry
