// The threads that compute. The calling thread is worker 0; the others spin for a short while after
// a step, then sleep, so an idle process uses no CPU. Built once, never resized.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"

namespace spry {

class WorkerPool;

// One participant of a running job.
class Worker {
 public:
  int index() const { return index_; }
  int count() const { return count_; }
  // Returns when every worker of the job has come here. Orders memory between them.
  void Barrier();
  // This worker's own memory, kWorkerScratchBytes, 64-byte aligned; content does not outlive a
  // call.
  std::span<std::byte> scratch() const { return scratch_; }

 private:
  friend class WorkerPool;
  WorkerPool* pool_ = nullptr;
  int index_ = 0;
  int count_ = 1;
  std::span<std::byte> scratch_;
};

inline constexpr int64_t kWorkerScratchBytes = 1280 << 10;

class WorkerPool {
 public:
  using Job = void (*)(const void* context, Worker& worker);

  // ResourceExhausted when the system refuses the memory or a thread.
  static Result<std::unique_ptr<WorkerPool>> Create(int num_workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const;
  // Runs `job` on every worker, this thread included, and returns when all are done. One caller at
  // a time. Allocates nothing.
  void Run(Job job, const void* context);

 private:
  friend class Worker;
  struct Shared;
  WorkerPool();
  Status Start(int num_workers);

  std::unique_ptr<Shared> shared_;
};

}  // namespace spry
