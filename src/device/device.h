// A device turns a Program into an Executable once, and the Executable replays it every step. The
// engine thread alone calls these. Everything a step needs is settled in Compile: kernels,
// addresses, memory; Launch and Poll allocate nothing and take no lock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/row.h"
#include "base/ids.h"
#include "base/status.h"
#include "device/launch_costs.h"
#include "device/step_profile.h"
#include "ops/attention/backend.h"
#include "ops/fusion.h"
#include "program/program.h"
#include "program/step.h"

namespace spry {

struct CompileOptions {
  StepLimits limits;
  std::string attention_backend;  // empty: the best that serves the program
  // Called on the compiling thread as weights are loaded; may be empty.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

// What Compile will take, in bytes.
struct MemoryNeeds {
  int64_t weights = 0;
  int64_t activations = 0;   // the arena of activation buffers and kernel scratch
  int64_t step = 0;          // slots, rows, block tables, results
  int64_t graphs = 0;        // at most; 0 where there are none
  int64_t kv_per_block = 0;  // over all layers
};

// Steps are numbered 0, 1, 2 ... and complete in order. Results and slots are rings of
// limits.ring_size: step s may be launched once step s - ring_size + 1 has been polled and
// consumed.
class Executable {
 public:
  virtual ~Executable() = default;

  // The slot of a step that has not been launched, to be filled by the caller.
  virtual StepSlot Slot(StepId step) = 0;
  // Starts the step (a device that computes on the calling thread does so here). Errors are fatal.
  virtual Status Launch(StepId step) = 0;
  // The results of a launched step, or null while it runs. Valid until step + ring_size is
  // launched. Errors are fatal: the device is lost.
  virtual Result<const StepResult*> Poll(StepId step) = 0;

  // The image of a rule slot, to be written by the caller before the launch of a step that copies
  // it and while no step in flight does.
  virtual RuleSlot RuleImage(int32_t slot) = 0;

  // The logits [L, vocab_size] of the step launched last, once it has been polled: for tests and
  // perplexity. A device without logits fails.
  virtual Status CopyLogits(std::span<float> logits) = 0;

  // One line on what a device with graphs made of steps, for the log; else empty.
  virtual std::string Stats() const { return {}; }

  // For benchmarks: records the steps launched from now on, until `profile` is full or another
  // (null: none) takes its place. Unimplemented where a step is not run op by op on the host.
  virtual Status Profile(StepProfile* profile) {
    static_cast<void>(profile);
    return Unimplemented("only the CPU runs a step op by op and can say when each ran");
  }

  // For benchmarks, after a last step has been polled: it launches work of that step again, so no
  // step may follow. Unimplemented where nothing is launched.
  virtual Result<LaunchCosts> MeasureLaunches() {
    return Unimplemented("this device computes on the host and launches nothing");
  }
};

struct DeviceInfo {
  std::string description;        // "2 threads, avx512 ..." or the card's name
  int64_t memory_bytes = 0;       // in all
  int64_t free_memory_bytes = 0;  // now
  // Nominal, at the highest clocks; 0: not known.
  double peak_gb_per_s = 0;  // of memory
  double peak_tflops = 0;    // products of 16-bit matrices
};

// What the flags' documentation promises for the device where no flag is given. These are those of
// a device that computes on the host: a step must stay short, and the machine has other work.
struct DeviceDefaults {
  int max_rows = 64;          // --max-num-seqs
  int max_step_tokens = 512;  // --max-num-batched-tokens
  int run_ahead = 1;
  // The device's memory is there for the model: --gpu-memory-utilization says how much of all of
  // it. Otherwise the KV cache takes a share of what is free.
  bool own_memory = false;
};

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;  // "cpu", "cuda", "null"
  virtual DeviceInfo info() const = 0;
  // Best first.
  virtual std::vector<AttentionBackend> attention_backends() const = 0;
  // The dtype of activation buffers when weights are computed as `compute`.
  virtual DType ActivationDType(DType compute) const = 0;
  // The optional fused ops that it executes.
  virtual Fusions fusions() const { return {}; }

  virtual DeviceDefaults defaults() const { return {}; }

  virtual Result<MemoryNeeds> Plan(const Program& program, const CompileOptions& options) const = 0;
  // `program` must outlive the Executable.
  virtual Result<std::unique_ptr<Executable>> Compile(const Program& program,
                                                      const CompileOptions& options) = 0;
};

}  // namespace spry
