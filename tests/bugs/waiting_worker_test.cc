// Beside two busy processes on two cores a step took 66 times as long as alone: a worker at a
// barrier yielded its core again and again, which left it runnable in front of the one that it
// waited for.
#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <thread>

#include "device/cpu/worker_pool.h"

namespace spry {
namespace {

std::chrono::nanoseconds ProcessCpu() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(WaitingWorker, UsesNoCpuWhileAnotherIsLate) {
  const auto pool = *WorkerPool::Create(3);
  const auto before = ProcessCpu();
  pool->Run(
      [](const void*, Worker& worker) {
        if (worker.index() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
        worker.Barrier();
        if (worker.index() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      },
      nullptr);
  EXPECT_LT(ProcessCpu() - before, std::chrono::milliseconds(100));
}

}  // namespace
}  // namespace spry
