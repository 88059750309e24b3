#include "device/cuda/executable.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/error.h"
#include "device/cuda/graphs.h"
#include "device/cuda/memory.h"
#include "device/cuda/row_kinds.h"
#include "device/cuda/weights.h"

namespace spry::cuda {
namespace {

// A poll is one read of host memory. Only every so often does it ask the driver whether the stream
// is still alive.
constexpr int kPollsPerCheck = 100;

class Stream {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  Status Create() {
    return CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                      "cudaStreamCreateWithFlags");
  }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaExecutable final : public Executable {
 public:
  CudaExecutable(const Program& program, MemoryPlan plan, const StepLimits& limits,
                 const CudaExecutableOptions& options)
      : program_(program),
        plan_(std::move(plan)),
        limits_(limits),
        options_(options),
        row_kinds_(limits.max_rows) {}

  ~CudaExecutable() override {
    // Memory must outlive the kernels in flight.
    if (stream_.get() != nullptr) (void)cudaStreamSynchronize(stream_.get());
  }

  Status Load(const CompileOptions& compile) {
    SPRY_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.ordinal));
    SPRY_RETURN_IF_ERROR(stream_.Create());
    SPRY_RETURN_IF_ERROR(Reserve());
    MapRings();
    SPRY_RETURN_IF_ERROR(UploadWeights(program_, plan_, weights_.data(), compile));
    SPRY_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    return Bind();
  }

  StepSlot Slot(StepId step) override { return slots_[step.value() % slots_.size()]; }

  Status Launch(StepId step) override {
    SPRY_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.ordinal));
    const StepHeader& header = *Slot(step).header;
    CHECK(header.num_tokens <= limits_.max_tokens && header.num_rows <= limits_.max_rows);
    CHECK(header.num_samples <= limits_.max_samples);
    last_shape_ = {
        .tokens = header.num_tokens, .rows = header.num_rows, .samples = header.num_samples};
    RowKinds kinds = row_kinds_.Update(Slot(step));
    kinds.plain &= plan_.logits.draws;
    kinds.in_order &= plan_.logits.gathers;
    const LaunchShape shape = BucketOf(header, limits_, kinds);
    if (!options_.capture_graphs) return LaunchAll(shape);
    SPRY_ASSIGN_OR_RETURN(const cudaGraphExec_t graph, graphs_->Get(shape));
    return CudaStatus(cudaGraphLaunch(graph, stream_.get()), "cudaGraphLaunch");
  }

  Result<const RowResult*> Poll(StepId step) override {
    const StepResult& result = results_[step.value() % results_.size()];
    if (HasArrived(result, step)) return static_cast<const RowResult*>(result.rows);
    if (++polls_ % kPollsPerCheck != 0) return static_cast<const RowResult*>(nullptr);
    const cudaError_t error = cudaStreamQuery(stream_.get());
    if (error == cudaErrorNotReady) return static_cast<const RowResult*>(nullptr);
    if (error != cudaSuccess) {
      return CudaStatus(error, fmt::format("a kernel at or before step {}", step.value()));
    }
    if (HasArrived(result, step)) return static_cast<const RowResult*>(result.rows);
    return Internal(fmt::format("cuda: step {} ended without a result", step.value()));
  }

  Status CopyLogits(std::span<float> logits) override {
    const Matrix matrix = context_->Resolve(program_.logits);
    CHECK(matrix.dtype == DType::kF32);
    const int64_t rows = last_shape_.Of(matrix.rows);
    if (static_cast<int64_t>(logits.size()) != rows * matrix.width) {
      return InvalidArgument(fmt::format("the last step has {} x {} logits; room for {} was given",
                                         rows, matrix.width, logits.size()));
    }
    SPRY_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
    return CudaStatus(cudaMemcpy2D(logits.data(), matrix.width * sizeof(float), matrix.data,
                                   matrix.stride * sizeof(float), matrix.width * sizeof(float),
                                   rows, cudaMemcpyDeviceToHost),
                      "cudaMemcpy2D of logits");
  }

  std::string Stats() const override {
    if (!options_.capture_graphs)
      return fmt::format("{} ops launched one by one", launches_.size());
    return fmt::format("{} graphs of {} kernels captured in {:.1f} ms", graphs_->size(),
                       graphs_->nodes_per_graph(),
                       static_cast<double>(graphs_->capture_nanos()) * 1e-6);
  }

 private:
  static bool HasArrived(const StepResult& result, StepId step) {
    // Pairs with the card's release store: whoever sees the tag sees the rows.
    const uint64_t tag = std::atomic_ref(*result.step).load(std::memory_order_acquire);
    return tag == step.value() + 1;
  }

  Status Reserve() {
    const auto reserve = [](DeviceMemory& memory, int64_t bytes, const char* what) -> Status {
      SPRY_ASSIGN_OR_RETURN(memory, DeviceMemory::Allocate(bytes, what));
      return {};
    };
    SPRY_RETURN_IF_ERROR(reserve(weights_, plan_.weight_bytes, "weights"));
    SPRY_RETURN_IF_ERROR(reserve(arena_, plan_.buffers.arena_bytes, "activations"));
    SPRY_RETURN_IF_ERROR(reserve(state_, plan_.state_bytes, "step arrays"));
    if (plan_.best_draws_bytes > 0) {
      SPRY_RETURN_IF_ERROR(reserve(best_draws_, plan_.best_draws_bytes, "sampling"));
      SPRY_RETURN_IF_CUDA_ERROR(cudaMemset(best_draws_.data(), 0, plan_.best_draws_bytes));
    }
    SPRY_RETURN_IF_ERROR(reserve(kv_, plan_.kv_block_bytes * limits_.num_blocks, "KV blocks"));
    SPRY_RETURN_IF_CUDA_ERROR(cudaMemset(state_.data(), 0, plan_.state_bytes));
    SPRY_ASSIGN_OR_RETURN(rings_memory_, MappedMemory::Allocate(plan_.ring_bytes));
    return {};
  }

  // The ring memory is all slots, then all results.
  void MapRings() {
    rings_ = {.slot_bytes = StepSlotBytes(limits_),
              .result_bytes = StepResultBytes(limits_),
              .size = limits_.ring_size};
    const int64_t results_at = rings_.slot_bytes * rings_.size;
    rings_.first_slot = MapStepSlot(limits_, rings_memory_.device());
    rings_.first_result = MapStepResult(limits_, rings_memory_.device() + results_at);
    rings_.step_counter = reinterpret_cast<uint64_t*>(state_.data());
    for (int i = 0; i < rings_.size; ++i) {
      std::byte* host = rings_memory_.host();
      slots_.push_back(MapStepSlot(limits_, host + i * rings_.slot_bytes));
      results_.push_back(MapStepResult(limits_, host + results_at + i * rings_.result_bytes));
    }
    step_state_ = MapStepState(limits_, state_.data() + kStepCounterBytes);
  }

  Status Bind() {
    context_.emplace(program_, limits_, plan_,
                     BindContext::Regions{.weights = weights_.data(),
                                          .arena = arena_.data(),
                                          .kv = kv_.data(),
                                          .best_draws = best_draws_.data()},
                     rings_);
    const KernelTable table = MakeKernelTable(options_.attention);
    for (const OpRecord& op : program_.ops) {
      SPRY_ASSIGN_OR_RETURN(const BoundLaunch launch,
                            table[static_cast<int>(op.id)](op, *context_));
      launches_.push_back(launch);
    }
    graphs_.emplace(stream_.get(), [this](const LaunchShape& shape) { return LaunchAll(shape); });
    return {};
  }

  Status LaunchAll(const LaunchShape& shape) {
    const LaunchContext context{.stream = stream_.get(),
                                .shape = shape,
                                .processors = options_.processors,
                                .overlap = options_.overlap};
    for (const BoundLaunch& bound : launches_) {
      bound.launch(bound.args, step_state_, context);
      const cudaError_t error = cudaGetLastError();
      if (error != cudaSuccess) {
        return CudaStatus(error, "launch of " + std::string(OpName(bound.op)));
      }
    }
    return {};
  }

  const Program& program_;
  MemoryPlan plan_;
  StepLimits limits_;
  CudaExecutableOptions options_;
  // Declared before what uses them, so destroyed after.
  DeviceMemory weights_;
  DeviceMemory arena_;
  DeviceMemory state_;
  DeviceMemory kv_;
  DeviceMemory best_draws_;
  MappedMemory rings_memory_;
  Stream stream_;
  StepRings rings_;
  StepState step_state_;
  std::vector<StepSlot> slots_;
  std::vector<StepResult> results_;
  std::optional<BindContext> context_;
  std::vector<BoundLaunch> launches_;
  std::optional<GraphCache> graphs_;
  RowKindTracker row_kinds_;
  LaunchShape last_shape_;  // the true counts of the step launched last
  uint64_t polls_ = 0;
};

}  // namespace

Result<std::unique_ptr<Executable>> MakeCudaExecutable(const Program& program, MemoryPlan plan,
                                                       const CompileOptions& compile,
                                                       const CudaExecutableOptions& options) {
  auto executable =
      std::make_unique<CudaExecutable>(program, std::move(plan), compile.limits, options);
  SPRY_RETURN_IF_ERROR(executable->Load(compile));
  return std::unique_ptr<Executable>(std::move(executable));
}

}  // namespace spry::cuda
