// How a CUDA op looks and what it is bound to. Every op becomes one BoundLaunch when a Program is
// compiled; a step is the launches in order on one stream, captured into a graph.
//
// A launch sizes its grid for the bucket (LaunchShape, buckets.h), the kernel reads the true counts
// (T, R, L) from the step's header on the card and blocks beyond them leave at once: one graph
// serves every step that fits its bucket. A launch only launches; the executor asks for errors.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/cuda/buckets.h"
#include "ops/attention/backend.h"
#include "program/program.h"
#include "program/step.h"

namespace spry::cuda {

struct LaunchContext {
  cudaStream_t stream = nullptr;
  LaunchShape shape;
  int32_t processors = 1;   // multiprocessors of the card
  bool overlap = false;     // the card knows programmatic dependent launch (overlap.cuh)
  bool warpgroups = false;  // the card and its code have warpgroup_mma.cuh
  int32_t clusters = 0;     // of linear_stream.cuh that run at once
};

using LaunchFn = void (*)(const void* args, const StepState& state, const LaunchContext& context);

struct BoundLaunch {
  OpId op = OpId::kStage;
  LaunchFn launch = nullptr;
  const void* args = nullptr;  // kept by the BindContext's owner
};

// What an op has folded in and its kernel does not do itself; nothing where there is none.
inline void LaunchFolded(const BoundLaunch& folded, const StepState& state,
                         const LaunchContext& context) {
  if (folded.launch != nullptr) folded.launch(folded.args, state, context);
}

// A Tensor with its address on the card: element (r, c) at data[(r * stride + c) * size of dtype].
struct Matrix {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  RowDim rows = RowDim::kTokens;
  int64_t width = 0;
  int64_t stride = 0;
};

// A weight matrix on the card, [rows, columns] packed, row by row or in tiles (weight_tiles.h).
struct WeightMatrix {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  bool tiled = false;
};

// What the card counts for itself.
struct alignas(16) StepCounters {
  uint64_t step = 0;   // the one being computed
  uint64_t early = 0;  // 1 + the step whose slot is in StepRings::early_slot
};

// The rings that host and card share, as the card addresses them. Entry i of each lies i * bytes
// further on.
//
// Where the next step is launched while one is computed, advance brings the next slot to the card,
// so that stage need not wait for the bus. It does so for steps of decoding rows alone.
struct StepRings {
  StepSlot first_slot;
  int64_t slot_bytes = 0;
  StepResult first_result;
  int64_t result_bytes = 0;
  int32_t size = 0;
  uint64_t* launched = nullptr;      // steps whose slots are written; the host counts them
  StepCounters* counters = nullptr;  // on the card
  StepSlot early_slot;               // on the card
  std::byte* rule_images = nullptr;  // [max_rule_slots]; no ring, but shared in the same way
};

struct MemoryPlan;

// In which launches an op packs the rows that it makes (row_taker.h). kWhereResident: where who
// takes them is resident (linear_resident.cuh).
enum class HandOver { kNever, kInDecode, kWhereResident, kAlways };

struct HandedRows {
  std::byte* packed = nullptr;
  HandOver when = HandOver::kNever;
};

// What binders may use. Lives as long as the executable; everything handed out stays valid with it.
class BindContext {
 public:
  struct Regions {
    std::byte* weights = nullptr;
    std::byte* arena = nullptr;
    std::byte* kv = nullptr;
    std::byte* best_draws = nullptr;   // draw.h; null: nobody draws
    std::byte* packed_rows = nullptr;  // of linears, two regions; null: nobody packs
    std::byte* attention = nullptr;    // scratch of the attention backend, 0 at first
  };

  BindContext(const Program& program, const StepLimits& limits, const MemoryPlan& plan,
              const Regions& regions, const StepRings& rings);

  const Program& program() const { return program_; }
  const StepLimits& limits() const { return limits_; }
  const StepRings& rings() const { return rings_; }

  Matrix Resolve(const Tensor& tensor) const;
  WeightMatrix Weight(WeightId id) const;
  const float* Floats(WeightId id) const;  // a vector or a rope table
  std::byte* best_draws() const { return regions_.best_draws; }
  std::byte* packed_rows(int region) const;  // 0 or 1
  std::byte* attention_scratch() const { return regions_.attention; }
  std::byte* kv_layer(LayerIdx layer) const { return kv_layers_[layer.value()]; }

  // Ops are bound in order: who makes a buffer says so before who reads it asks.
  void Hand(BufferId made, const HandedRows& rows) { handed_[made.value()] = rows; }
  const HandedRows& Handed(BufferId made) const { return handed_[made.value()]; }

  // Copies `args` to where they stay.
  template <typename T>
  const T* Keep(T args) {
    auto kept = std::make_shared<T>(std::move(args));
    kept_.push_back(kept);
    return kept.get();
  }

 private:
  const Program& program_;
  StepLimits limits_;
  const MemoryPlan& plan_;
  Regions regions_;
  StepRings rings_;
  std::vector<std::byte*> kv_layers_;
  std::vector<HandedRows> handed_;  // by buffer
  std::deque<std::shared_ptr<const void>> kept_;
};

using BindFn = Result<BoundLaunch> (*)(const OpRecord& op, BindContext& context);

// A write_kv and attention pair that agree on a cache layout.
struct CudaAttentionBackend {
  AttentionBackend facts;
  int64_t (*bytes_per_block)(const KvLayer& layer, int block_size) = nullptr;
  BindFn bind_write_kv = nullptr;
  BindFn bind_attention = nullptr;  // with write_kv folded in or not (ops/attention/attention.h)
  int64_t (*scratch_bytes)(const Program& program, const StepLimits& limits) = nullptr;  // null: 0
};

// The binder of every op; write_kv and attention come from the backend.
using KernelTable = std::array<BindFn, kNumOps>;
KernelTable MakeKernelTable(const CudaAttentionBackend& attention);

// The fast one: 16-bit KV, head sizes 64 and 128.
CudaAttentionBackend CudaAttention();
// Heads of 64, the fastest for decode steps over short contexts.
CudaAttentionBackend CudaLanesAttention();
// Any head size and every parameter, in the CPU reference's order of operations.
CudaAttentionBackend CudaReferenceAttention();

Result<BoundLaunch> BindStage(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindEmbed(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindLayerNorm(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindRmsNorm(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindLinear(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindRope(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindFoldedRope(const OpRecord& attention, BindContext& context);
Result<BoundLaunch> BindActivation(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindGatedActivation(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindAdd(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindGatherSamples(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindSample(const OpRecord& op, BindContext& context);
Result<BoundLaunch> BindAdvance(const OpRecord& op, BindContext& context);

}  // namespace spry::cuda
