// Controls for tails: fixed work beside the steps of an engine, on as many threads as compute them,
// that nothing of the engine can slow. Where the p99 of one leaves its median, the machine was
// disturbed and the tail of the steps says nothing about the engine. Two kinds, since a machine
// shares both: arithmetic in registers (frequency, stolen time) and reads of memory (bandwidth that
// neighbours take; a decode step on a CPU is little else).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "device/cpu/worker_pool.h"

namespace spry {

class TailControl {
 public:
  // Each kind takes about that long on this machine, as measured now. A step is as slow as the
  // slowest of its threads, and so is the work of a control.
  static Result<std::unique_ptr<TailControl>> Create(int threads, double target_us);

  void Run();
  const std::vector<double>& arithmetic_us() const { return arithmetic_us_; }
  const std::vector<double>& memory_us() const { return memory_us_; }

 private:
  explicit TailControl(std::unique_ptr<WorkerPool> pool);
  double Multiply();
  double Read();  // goes on where the last call ended, around each thread's part of the memory
  double Time(WorkerPool::Job job);
  int64_t PartWords() const;  // of the memory, for each thread

  std::unique_ptr<WorkerPool> pool_;
  std::vector<uint64_t> memory_;
  int64_t rounds_ = 0;     // of multiplication, of each thread
  int64_t words_ = 0;      // read by each thread
  int64_t next_word_ = 0;  // of a thread's part
  std::vector<double> arithmetic_us_, memory_us_;
};

}  // namespace spry
