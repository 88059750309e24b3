// How a CPU kernel looks and what it is bound to. Every op becomes one BoundCall when a Program is
// compiled; a step runs the calls in order, each on all workers at once, with a barrier after each.
//
// A kernel splits its own work over workers by index (rows, columns, heads: never the sum over K),
// reads counts (T, R, L) from the step's header, allocates nothing, and may use Worker::Barrier
// inside, as long as every worker meets it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "device/cpu/kv_memory.h"
#include "device/cpu/memory_region.h"
#include "device/cpu/worker_pool.h"
#include "ops/attention/backend.h"
#include "program/program.h"
#include "program/step.h"

namespace spry {

using KernelFn = void (*)(const void* args, const StepState& state, Worker& worker);

struct BoundCall {
  OpId op = OpId::kStage;
  KernelFn run = nullptr;
  const void* args = nullptr;  // kept by the BindContext's owner
};

// A Tensor with its address: element (r, c) at data[(r * stride + c) * size of dtype].
struct Matrix {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  RowDim rows = RowDim::kTokens;
  int64_t width = 0;
  int64_t stride = 0;

  float* Row(int64_t r) const { return reinterpret_cast<float*>(data) + r * stride; }  // f32 only
};

inline int32_t NumRows(RowDim dim, const StepState& state) { return NumRows(dim, *state.header); }

// [begin, end) of `count` items for one worker, in multiples of `grain`.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
};
inline Share ShareOf(int64_t count, const Worker& worker, int64_t grain = 1) {
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t begin = grains * worker.index() / worker.count() * grain;
  const int64_t end = grains * (worker.index() + 1) / worker.count() * grain;
  return {begin < count ? begin : count, end < count ? end : count};
}

// What binders may use. Lives as long as the executable; everything handed out stays valid with it.
class BindContext {
 public:
  // Whatever allocates fails with ResourceExhausted when the system refuses the memory.
  static Result<std::unique_ptr<BindContext>> Create(const Program& program,
                                                     const StepLimits& limits, WorkerPool& pool);

  const Program& program() const { return program_; }
  const StepLimits& limits() const { return limits_; }
  WorkerPool& pool() { return pool_; }  // for repacking in parallel

  Matrix Resolve(const Tensor& tensor) const;

  // Memory for repacked weights, 64-byte aligned, huge pages where the system gives them.
  Result<std::byte*> AllocateWeights(int64_t bytes);
  int64_t weight_bytes() const { return weight_bytes_; }

  // A weight as f32 [rows, columns]; for the small ones (norms, biases, tables). Ops that share a
  // weight share the floats.
  Result<const float*> LoadFloats(WeightId id);
  // A part of a weight as it is in the checkpoint, its bytes checked against its shape. ReadPart
  // for repacking: the file gets its pages back when the tensor goes. LoadRaw keeps it mapped.
  Result<HostTensor> ReadPart(const WeightHandle& part) const;
  Result<HostTensor> LoadRaw(const WeightHandle& part);

  // One region that all kernels share, sized for the largest request; its content does not outlive
  // a call. The address is behind the pointer once binding is over.
  std::byte* const* ShareScratch(int64_t bytes);

  std::byte* kv_layer(LayerIdx layer) const { return kv_.layer(layer); }

  // Copies `args` to where they stay.
  template <typename T>
  const T* Keep(T args) {
    auto kept = std::make_shared<T>(std::move(args));
    kept_.push_back(kept);
    return kept.get();
  }

  // For the executable, before and after the binders run.
  using BytesPerBlockFn = int64_t (*)(const KvLayer& layer, int block_size);
  Status AllocateKv(BytesPerBlockFn bytes_per_block);
  KvMemory& kv() { return kv_; }
  Status FinishBinding();  // gives the shared scratch its memory

 private:
  BindContext(const Program& program, const StepLimits& limits, WorkerPool& pool);

  const Program& program_;
  StepLimits limits_;
  WorkerPool& pool_;
  BufferPlan plan_;
  MemoryRegion arena_;
  int64_t scratch_bytes_ = 0;
  MemoryRegion scratch_region_;
  std::byte* scratch_ = nullptr;
  std::vector<MemoryRegion> weight_slabs_;
  int64_t slab_used_ = 0;  // bytes of the last slab
  int64_t weight_bytes_ = 0;
  std::vector<const float*> floats_;  // by WeightId; null: not loaded
  KvMemory kv_;
  std::deque<std::shared_ptr<const void>> kept_;
};

using BindFn = Result<BoundCall> (*)(const OpRecord& op, BindContext& context);

// The kernels that serve each op (write_kv and attention come from the attention backend). Chosen
// once, when the device is made: the reference table, overlaid with an instruction set's kernels.
using KernelTable = std::array<BindFn, kNumOps>;

// A write_kv and attention pair that agree on a cache layout.
struct CpuAttentionBackend {
  AttentionBackend facts;
  BindContext::BytesPerBlockFn bytes_per_block = nullptr;
  BindFn bind_write_kv = nullptr;
  BindFn bind_attention = nullptr;
};

// reference/: plain loops over f32, the oracle for every other kernel and device.
KernelTable ReferenceKernels();
CpuAttentionBackend ReferenceAttention();

}  // namespace spry
