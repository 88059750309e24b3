// Times an op on any device through its public interface: a Program of some copies of the op is
// replayed, and so is one without them; what a copy adds to a step is its time. So on a card an op
// is timed where it runs, among other kernels and, with graphs, inside one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "program/program.h"
#include "program/tracer.h"

namespace spry {

// Of what the copies of an op read, weights or keys and values: more than caches hold.
inline constexpr int64_t kColdBytes = int64_t{256} << 20;

// A row of a timed step: tokens from position `start` on, the last one's logits wanted.
struct TimedRow {
  int32_t num_tokens = 1;
  int32_t start = 0;
};

// The pool's blocks [first, first + count).
struct RowBlocks {
  int32_t first = 0;
  int32_t count = 0;
};

// Replays steps of one Program.
class StepReplay {
 public:
  static Result<std::unique_ptr<StepReplay>> Create(Device& device, Program program,
                                                    const CompileOptions& options);

  // Starts rows 0, 1, 2 ... with these blocks, and gives the blocks numbers to hold.
  Status Start(const std::vector<RowBlocks>& blocks);
  // Of a step of rows 0, 1, 2 ...: the median over many, as many in flight as the ring allows.
  Result<double> MedianMicros(const std::vector<TimedRow>& rows);

 private:
  StepReplay() = default;
  StepSlot NewStep();  // without rows
  void AddRow(const StepSlot& slot, int32_t row, const TimedRow& timed);
  Status FillBlocks(const std::vector<RowBlocks>& blocks);
  Status Launch();
  Status WaitOldest();
  Result<std::vector<double>> Micros(const std::vector<TimedRow>& rows, int steps);

  Program program_;
  StepLimits limits_;
  std::unique_ptr<Executable> executable_;
  uint64_t launched_ = 0;
  uint64_t retired_ = 0;
};

struct TimedOp {
  TraceOptions trace;
  int64_t input_width = 0;  // of the rows [T, width] that every copy reads
  // Emits copy number `copy`.
  std::function<void(Tracer& tracer, const Tensor& inputs, int copy)> emit;
  int copies = 1;
};

class OpTimer {
 public:
  // limits.ring_size and max_block_writes are set here. ResourceExhausted when it does not fit.
  static Result<OpTimer> Create(Device& device, const TimedOp& op, CompileOptions options);

  Status Start(const std::vector<RowBlocks>& blocks);
  // Microseconds of one copy in a step of these rows.
  Result<double> Measure(const std::vector<TimedRow>& rows);

 private:
  int copies_ = 1;
  std::unique_ptr<StepReplay> with_;
  std::unique_ptr<StepReplay> without_;
};

}  // namespace spry
