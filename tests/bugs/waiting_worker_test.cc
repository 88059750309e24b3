// Beside two busy processes on two cores a step took 66 times as long as alone: a worker at a
// barrier yielded its core again and again, which left it runnable in front of the one that it
// waited for.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "device/cpu/worker_pool.h"
#include "tests/support/cpu_time.h"

namespace spry {
namespace {

TEST(WaitingWorker, UsesNoCpuWhileAnotherIsLate) {
  const auto pool = *WorkerPool::Create(3);
  const double before = ProcessCpuSeconds();
  pool->Run(
      [](const void*, Worker& worker) {
        if (worker.index() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        worker.Barrier();
        if (worker.index() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      },
      nullptr);
  EXPECT_LT(ProcessCpuSeconds() - before, 0.1);
}

}  // namespace
}  // namespace spry
