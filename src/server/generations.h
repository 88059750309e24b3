// The requests for text that are running: each one's exchange, its choices in the engine and what
// has been written of its answer. Lives on the I/O thread. What a step gave goes out as one write a
// connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/async_engine.h"
#include "server/api_error.h"
#include "server/api_request.h"
#include "server/http.h"
#include "server/openai_answer.h"
#include "server/served_model.h"

namespace spry {

// A request that has ended, for the log and for /metrics.
struct RequestReport {
  std::string_view request_id;
  std::string_view endpoint;  // "chat", "completions"
  std::string_view finish;    // "stop", "length", "error", "abort": of its first choice
  std::string_view error;     // what happened; mostly empty
  Usage usage;
  int n = 1;
  int num_prompts = 1;
  int max_tokens = 0;
  RowFault fault = RowFault::kNone;           // with an error: what the device said
  double prompt_seconds = 0;                  // from the arrival until the engine had it
  std::optional<double> queue_seconds;        // from there until it ran; none: it never did
  std::optional<double> prefill_seconds;      // from there to its first token; none: it got none
  std::optional<double> first_token_seconds;  // from the arrival
  double decode_seconds = 0;                  // from its first token to its last
  double total_seconds = 0;                   // from the arrival to the end
};

// 429: nothing more can run or wait.
ApiError TooManyAnswers(int answers, const ServedModel& model);

class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  // A token of some choice, and how long after that choice's last one; none: its first.
  virtual void OnToken(std::optional<double> seconds_since_last) = 0;
  virtual void OnFirstToken(double seconds_since_arrival) = 0;  // of a request; besides OnToken
  virtual void OnEnd(const RequestReport& report) = 0;
};

class Generations {
 public:
  // All must outlive this.
  Generations(AsyncEngine& engine, const ServedModel& model, const Clock& clock,
              GenerationObserver& observer);
  ~Generations();

  // Takes a request to the engine. Its answer, or the error, goes through `exchange`, which is kept
  // until then. When the client leaves, all its choices are cancelled. `arrival`: when the request
  // was there, by the clock.
  void Start(std::shared_ptr<HttpExchange> exchange, ApiRequest request, int64_t arrival);

  // What the engine gave. Tickets that are not known here are passed over.
  void OnOutputs(std::span<const Output> outputs);

  // Ends them all with an error, which each client is told in the form that its answer has by then.
  void FailAll(const ApiError& error);

  int running() const { return static_cast<int>(running_.size()); }

 private:
  struct Choice;
  struct Generation;
  struct Place {
    Generation* generation = nullptr;
    int choice = 0;
  };

  std::optional<ApiError> Submit(Generation& generation);
  void Take(const Output& output, Place place);
  void TakePrompt(const Output& output, Generation& generation, Choice& choice);
  void TakeTimes(Generation& generation, Choice& choice);
  void WriteFirst(Generation& generation, Choice& choice);
  void WriteNext(const Output& output, Generation& generation, Choice& choice,
                 std::string_view text);
  void AppendOut(Generation& generation);
  void EndChoice(const Output& output, Generation& generation, Choice& choice);
  void SendWhole(Generation& generation);
  void Fail(Generation& generation, const ApiError& error);
  void FailSafely(Generation& generation, const std::function<ApiError()>& error);
  void Leave(uint64_t number);
  void CancelChoices(Generation& generation);
  // Nothing more comes for it; it is forgotten once the work at hand is done.
  void End(Generation& generation, std::string_view finish, std::string_view error);
  void Settle();
  std::string NewId();

  AsyncEngine& engine_;
  const ServedModel& model_;
  const Clock& clock_;
  GenerationObserver& observer_;
  std::unordered_map<uint64_t, std::unique_ptr<Generation>> running_;
  std::unordered_map<Ticket, Place> places_;
  uint64_t next_number_ = 0;
  std::mt19937_64 random_;

  // Of the work at hand.
  bool working_ = false;
  int64_t now_ = 0;
  std::string out_;  // what is written to one exchange
  // Both have room for all that run, so that no end of a request needs memory.
  std::vector<Generation*> touched_;
  std::vector<uint64_t> ended_;
};

}  // namespace spry
