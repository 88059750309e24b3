#include "device/cpu/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <vector>

#include "base/allocation_counter.h"
#include "tests/support/cpu_time.h"

namespace spry {
namespace {

TEST(WorkerPool, EveryWorkerRunsOnce) {
  for (const int workers : {1, 2, 3, 8}) {
    const auto pool = *WorkerPool::Create(workers);
    EXPECT_EQ(pool->size(), workers);
    std::vector<int> runs(workers);
    for (int i = 0; i < 200; ++i) {
      pool->Run(
          [](const void* context, Worker& worker) {
            auto& counts =
                *const_cast<std::vector<int>*>(static_cast<const std::vector<int>*>(context));
            EXPECT_EQ(worker.count(), std::ssize(counts));
            EXPECT_EQ(std::ssize(worker.scratch()), kWorkerScratchBytes);
            ++counts[worker.index()];
          },
          &runs);
    }
    EXPECT_EQ(runs, std::vector<int>(workers, 200));
  }
}

struct Rounds {
  std::vector<int64_t> values;  // one per worker, plain memory: the barrier must order it
  std::atomic<int> wrong{0};
};

// Each round every worker writes its own value and then reads all others'.
TEST(WorkerPool, BarrierOrdersMemory) {
  for (const int workers : {2, 3, 8}) {  // 8 is more than a small machine has
    const auto pool = *WorkerPool::Create(workers);
    Rounds rounds{.values = std::vector<int64_t>(workers)};
    pool->Run(
        [](const void* context, Worker& worker) {
          auto& shared = *const_cast<Rounds*>(static_cast<const Rounds*>(context));
          for (int64_t round = 1; round <= 300; ++round) {
            shared.values[worker.index()] = round;
            worker.Barrier();
            const int64_t sum =
                std::accumulate(shared.values.begin(), shared.values.end(), int64_t{0});
            if (sum != round * worker.count()) ++shared.wrong;
            worker.Barrier();
          }
        },
        &rounds);
    EXPECT_EQ(rounds.wrong, 0);
  }
}

TEST(WorkerPool, IdleUsesNoCpu) {
  const auto pool = *WorkerPool::Create(4);
  pool->Run([](const void*, Worker&) {}, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the spin is long over
  const double before = ProcessCpuSeconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(ProcessCpuSeconds() - before, 0.005);
  // Asleep is not gone.
  std::atomic<int> runs{0};
  pool->Run(
      [](const void* context, Worker&) {
        ++*const_cast<std::atomic<int>*>(static_cast<const std::atomic<int>*>(context));
      },
      &runs);
  EXPECT_EQ(runs, 4);
}

TEST(WorkerPool, RunAllocatesNothing) {
  const auto pool = *WorkerPool::Create(3);
  pool->Run([](const void*, Worker&) {}, nullptr);
  const uint64_t before = ProcessAllocations();
  for (int i = 0; i < 20; ++i) pool->Run([](const void*, Worker& w) { w.Barrier(); }, nullptr);
  EXPECT_EQ(ProcessAllocations(), before);
}

}  // namespace
}  // namespace spry
