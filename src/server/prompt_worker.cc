#include "server/prompt_worker.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "server/api_error.h"

namespace spry {
namespace {

// The lowest priority there is. The CPU device's threads meet at hundreds of barriers a step, each
// of which waits for the one that shares its core: with equal priority a step of 10 ms took 240 ms.
constexpr int kNice = 19;

// After that time it is a request's turn, whatever its size.
constexpr std::chrono::seconds kLongWait{1};

// What libraries throw, memory that can't be had above all, costs one request.
Prepared PrepareSafely(const std::function<Prepared(const HttpRequest&)>& prepare,
                       const HttpRequest& request) {
  try {
    try {
      return prepare(request);
    } catch (const std::exception& failure) {
      return ErrorAnswer(ToApiError(failure));
    }
  } catch (const std::exception&) {
    return HttpResponse{.status = 503, .content_type = {}};
  }
}

}  // namespace

Result<std::unique_ptr<PromptWorker>> PromptWorker::Start() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) {
    return ResourceExhausted(
        fmt::format("the system gives no eventfd ({}); raise ulimit -n", std::strerror(errno)));
  }
  std::unique_ptr<PromptWorker> worker(new PromptWorker(event));
  try {
    worker->thread_ = std::thread([self = worker.get()] { self->Run(); });
  } catch (const std::system_error& error) {
    return ResourceExhausted(
        fmt::format("the system refuses a thread for the reader of large requests: {}; raise the "
                    "limit on threads "
                    "(ulimit -u) or on virtual memory (ulimit -v)",
                    error.code().message()));
  }
  return worker;
}

PromptWorker::~PromptWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  close(done_event_);
}

uint64_t PromptWorker::Add(HttpRequest request,
                           std::function<Prepared(const HttpRequest&)> prepare) {
  const uint64_t number = next_job_++;
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({.number = number,
                        .added = std::chrono::steady_clock::now(),
                        .request = std::move(request),
                        .prepare = std::move(prepare),
                        .done = std::list<Done>(1)});
  }
  changed_.notify_one();
  return number;
}

void PromptWorker::Cancel(uint64_t job) {
  Job cancelled;  // goes when the lock has been given back
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(waiting_, job, &Job::number);
  if (found == waiting_.end()) return;
  cancelled = std::move(*found);
  waiting_.erase(found);
}

std::list<PromptWorker::Done> PromptWorker::TakeDone() {
  // Before the list is read: what comes later makes it readable again.
  uint64_t count = 0;
  if (read(done_event_, &count, sizeof(count)) < 0) count = 0;
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

// Under the lock, and only when one waits. They wait in the order in which they came.
PromptWorker::Job PromptWorker::TakeNext() {
  auto next = waiting_.begin();
  if (std::chrono::steady_clock::now() - next->added < kLongWait) {
    next = std::ranges::min_element(waiting_, {},
                                    [](const Job& job) { return job.request.body.size(); });
  }
  Job job = std::move(*next);
  waiting_.erase(next);
  return job;
}

void PromptWorker::Run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      job = TakeNext();
    }
    std::list<Done> done = std::move(job.done);
    done.front() = {.job = job.number, .prepared = PrepareSafely(job.prepare, job.request)};
    job = Job();
    {
      const std::lock_guard lock(mutex_);
      done_.splice(done_.end(), done);
    }
    eventfd_write(done_event_, 1);
  }
}

}  // namespace spry
