#include "device/cpu/worker_pool.h"

#include <fmt/format.h>

#include <chrono>
#include <system_error>

#include "base/check.h"
#include "base/pause.h"
#include "device/cpu/memory_region.h"

namespace spry {
namespace {

// A decode step of a small model takes about a millisecond and the host needs microseconds between
// two of them, so workers that spin this long meet the next step awake.
constexpr auto kIdleSpin = std::chrono::microseconds(50);
// Within a step the others are nearly always computing on cores of their own and arrive in far
// less. When they do not, the machine is oversubscribed and the core is better given away: by
// sleeping, for a thread that only yields stays in the queue before the one that it waits for.
constexpr int kBarrierSpins = 3000;
constexpr int kSpinsPerClockRead = 64;

}  // namespace

struct WorkerPool::Shared {
  int count = 1;
  MemoryRegion scratch;
  std::vector<Worker> workers;
  std::vector<std::thread> threads;

  // Written by the caller of Run before `epoch` moves on.
  Job job = nullptr;
  const void* context = nullptr;
  bool stop = false;
  // The number of the job; idle workers wait for it to move.
  alignas(64) std::atomic<uint32_t> epoch{0};

  // The barrier: the last to arrive resets `arrived` and moves `phase`, which frees the others.
  alignas(64) std::atomic<int> arrived{0};
  alignas(64) std::atomic<uint32_t> phase{0};

  void Barrier() {
    if (count == 1) return;
    const uint32_t my_phase = phase.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
      arrived.store(0, std::memory_order_relaxed);
      phase.store(my_phase + 1);  // sequentially consistent, as in Run
      phase.notify_all();
      return;
    }
    for (int spins = 0; spins < kBarrierSpins; ++spins) {
      if (phase.load(std::memory_order_acquire) != my_phase) return;
      Pause();
    }
    phase.wait(my_phase, std::memory_order_acquire);
  }

  // Returns when the epoch is no longer `seen`.
  void AwaitEpoch(uint32_t seen) {
    const auto sleep_at = std::chrono::steady_clock::now() + kIdleSpin;
    do {
      for (int i = 0; i < kSpinsPerClockRead; ++i) {
        if (epoch.load(std::memory_order_acquire) != seen) return;
        Pause();
      }
    } while (std::chrono::steady_clock::now() < sleep_at);
    epoch.wait(seen, std::memory_order_acquire);
  }

  void RunThread(int index) {
    for (uint32_t seen = 0;; ++seen) {
      AwaitEpoch(seen);
      if (stop) return;
      job(context, workers[index]);
      Barrier();
    }
  }
};

void Worker::Barrier() { pool_->shared_->Barrier(); }

WorkerPool::WorkerPool() : shared_(std::make_unique<Shared>()) {}

Result<std::unique_ptr<WorkerPool>> WorkerPool::Create(int num_workers) {
  std::unique_ptr<WorkerPool> pool(new WorkerPool);
  SPRY_RETURN_IF_ERROR(pool->Start(num_workers));
  return pool;
}

Status WorkerPool::Start(int num_workers) {
  CHECK(num_workers >= 1);
  shared_->count = num_workers;
  SPRY_ASSIGN_OR_RETURN(shared_->scratch,
                        MemoryRegion::Map(num_workers * kWorkerScratchBytes, PageKind::kHuge));
  shared_->workers.resize(num_workers);
  for (int i = 0; i < num_workers; ++i) {
    Worker& worker = shared_->workers[i];
    worker.pool_ = this;
    worker.index_ = i;
    worker.count_ = num_workers;
    worker.scratch_ = {shared_->scratch.data() + i * kWorkerScratchBytes,
                       static_cast<size_t>(kWorkerScratchBytes)};
  }
  try {
    for (int i = 1; i < num_workers; ++i) {
      shared_->threads.emplace_back([shared = shared_.get(), i] { shared->RunThread(i); });
    }
  } catch (const std::system_error& error) {
    return ResourceExhausted(fmt::format(
        "the system refuses thread {} of {}: {}; lower --threads, or raise the limit on threads "
        "or on virtual memory",
        shared_->threads.size() + 1, num_workers, error.code().message()));
  }
  return {};
}

WorkerPool::~WorkerPool() {
  shared_->stop = true;
  shared_->epoch.fetch_add(1);
  shared_->epoch.notify_all();
  for (std::thread& thread : shared_->threads) thread.join();
}

int WorkerPool::size() const { return shared_->count; }

void WorkerPool::Run(Job job, const void* context) {
  shared_->job = job;
  shared_->context = context;
  // Sequentially consistent, as a worker going to sleep must either see it or be seen asleep.
  shared_->epoch.fetch_add(1);
  shared_->epoch.notify_all();
  job(context, shared_->workers[0]);
  shared_->Barrier();
}

}  // namespace spry
