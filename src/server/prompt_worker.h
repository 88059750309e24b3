// Reads large requests (JSON, chat template, tokens) on a thread of its own: megabytes take up to
// seconds, and the I/O thread has streams to carry meanwhile. Small ones are read where they come
// in, so one that is sent later may reach the engine sooner.
//
//   I/O thread   Add, Cancel --jobs--> worker: one at a time
//                TakeDone   <--done---, and done_event() becomes readable
//
// So at most one large request is spread out in memory; how many may wait is up to those who add.
// The smallest comes first, so that who sends many of the largest delays the others by one of them;
// but one that has waited for long comes before all that came later. A request in work is read to
// its end. The thread takes what the engine's leave of the cores, so streams keep their pace and a
// large prompt waits a little longer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "base/status.h"
#include "server/api_request.h"
#include "server/http.h"

namespace spry {

// What a request became: an answer at once (mostly an error), or work for the engine.
using Prepared = std::variant<HttpResponse, ApiRequest>;

class PromptWorker {
 public:
  static Result<std::unique_ptr<PromptWorker>> Start();
  // Waits for the job in work (5 s at worst: 16 MiB without a space) and drops the others.
  ~PromptWorker();
  PromptWorker(const PromptWorker&) = delete;
  PromptWorker& operator=(const PromptWorker&) = delete;

  // All of these are the I/O thread's.
  // `prepare` is called on the worker's thread; what it refers to must outlive this. Returns a
  // number never used twice.
  uint64_t Add(HttpRequest request, std::function<Prepared(const HttpRequest&)> prepare);
  // A job that waits is forgotten at once, with its body. One in work ends by itself, and comes out
  // of TakeDone.
  void Cancel(uint64_t job);

  struct Done {
    uint64_t job = 0;
    Prepared prepared;
  };
  std::list<Done> TakeDone();
  // An eventfd that becomes readable when there is something to take; TakeDone resets it.
  int done_event() const { return done_event_; }

 private:
  struct Job {
    uint64_t number = 0;
    std::chrono::steady_clock::time_point added;
    HttpRequest request;
    std::function<Prepared(const HttpRequest&)> prepare;
    std::list<Done> done;  // one, made beforehand: a result needs no memory to be handed over
  };

  Job TakeNext();
  explicit PromptWorker(int done_event) : done_event_(done_event) {}
  void Run();

  const int done_event_;
  uint64_t next_job_ = 0;  // the I/O thread's

  std::mutex mutex_;  // of what follows; nobody works under it
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::list<Done> done_;
  bool stopping_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace spry
