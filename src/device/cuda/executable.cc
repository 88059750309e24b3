#include "device/cuda/executable.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/error.h"
#include "device/cuda/graphs.h"
#include "device/cuda/launch_costs.h"
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
    SPRY_RETURN_IF_ERROR(Bind());
    return HasGraphs() ? CaptureDecodes() : Status();
  }

  StepSlot Slot(StepId step) override { return slots_[step.value() % slots_.size()]; }

  Status Launch(StepId step) override {
    SPRY_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.ordinal));
    const StepHeader& header = *Slot(step).header;
    // The card may read the slot from here on.
    std::atomic_ref(*launched_).store(step.value() + 1, std::memory_order_release);
    CHECK(header.num_tokens <= limits_.max_tokens && header.num_rows <= limits_.max_rows);
    CHECK(header.num_samples <= limits_.max_samples);
    RowKinds kinds = row_kinds_.Update(Slot(step));
    kinds.plain &= header.num_samples <= plan_.logits.drawn_rows;
    kinds.in_order &= plan_.logits.gathers;
    last_shape_ = ExactShape(header, kinds);
    if (!HasGraphs()) return LaunchOps(AllOps(), last_shape_, options_.overlap);
    last_bucket_ = BucketOf(header, limits_, kinds);
    SPRY_ASSIGN_OR_RETURN(const StepGraphs graphs, graphs_->Get(last_bucket_));
    if (graphs.empty()) return LaunchOps(AllOps(), last_shape_, options_.overlap);
    return LaunchPieces(graphs);
  }

  Result<const StepResult*> Poll(StepId step) override {
    const StepResult& result = results_[step.value() % results_.size()];
    if (HasArrived(result, step)) return &result;
    if (++polls_ % kPollsPerCheck != 0) return static_cast<const StepResult*>(nullptr);
    const cudaError_t error = cudaStreamQuery(stream_.get());
    if (error == cudaErrorNotReady) return static_cast<const StepResult*>(nullptr);
    if (error != cudaSuccess) {
      return CudaStatus(error, fmt::format("a kernel at or before step {}", step.value()));
    }
    if (HasArrived(result, step)) return &result;
    return Internal(fmt::format("cuda: step {} ended without a result", step.value()));
  }

  RuleSlot RuleImage(int32_t slot) override {
    CHECK(slot >= 0 && slot < limits_.max_rule_slots);
    const RuleSlotLayout& layout = step_state_.rule_layout;
    RuleSlot image =
        MapRuleSlot(layout, rings_memory_.host() + plan_.ring_bytes + slot * layout.image_bytes);
    image.logits = nullptr;
    return image;
  }

  Status CopyLogits(std::span<float> logits) override {
    const Matrix matrix = context_->Resolve(program_.logits);
    CHECK(matrix.dtype == DType::kF32);
    const int64_t rows = last_shape_.Of(matrix.rows);
    if (static_cast<int64_t>(logits.size()) != rows * matrix.width) {
      return InvalidArgument(fmt::format("the last step has {} x {} logits; room for {} was given",
                                         rows, matrix.width, logits.size()));
    }
    if (last_shape_.draws) SPRY_RETURN_IF_ERROR(MakeLogits());
    SPRY_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
    return CudaStatus(cudaMemcpy2D(logits.data(), matrix.width * sizeof(float), matrix.data,
                                   matrix.stride * sizeof(float), matrix.width * sizeof(float),
                                   rows, cudaMemcpyDeviceToHost),
                      "cudaMemcpy2D of logits");
  }

  std::string Stats() const override {
    if (!HasGraphs()) return fmt::format("{} ops launched one by one", launches_.size());
    return fmt::format(
        "{} step sizes captured in {:.1f} ms, each {} graph{} of {} kernels in all; {} of them at "
        "start, {:.1f} MiB of the card",
        graphs_->buckets(), static_cast<double>(graphs_->capture_nanos()) * 1e-6,
        graphs_->graphs_per_step(), graphs_->graphs_per_step() == 1 ? "" : "s",
        graphs_->kernels_per_step(), buckets_at_start_,
        static_cast<double>(graph_bytes_at_start_) / (1 << 20));
  }

  Result<LaunchCosts> MeasureLaunches() override {
    SPRY_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.ordinal));
    const cudaStream_t stream = stream_.get();
    StepGraphs graphs;
    if (HasGraphs()) {
      SPRY_ASSIGN_OR_RETURN(graphs, graphs_->Get(last_bucket_));
    }
    const std::vector<Piece> pieces =
        graphs.empty() ? std::vector<Piece>{AllOps()} : options_.pieces;
    LaunchCosts costs;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      SPRY_ASSIGN_OR_RETURN(const int kernels, CountKernels(stream, [&] {
                              return LaunchOps(piece, piece.splits ? last_shape_ : last_bucket_,
                                               options_.overlap);
                            }));
      (piece.splits ? costs.kernels : costs.graph_kernels) += kernels;
      if (!piece.splits && graphs[i] != nullptr) ++costs.graphs;
    }
    SPRY_ASSIGN_OR_RETURN(costs.bare_graphs_ns,
                          BareGraphsNanos(stream, costs.graphs, costs.graph_kernels));
    SPRY_ASSIGN_OR_RETURN(costs.bare_kernel_ns, BareKernelNanos(stream));
    SPRY_RETURN_IF_ERROR(MeasureAttention(costs));
    return costs;
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
    if (plan_.packed_row_bytes > 0) {
      SPRY_RETURN_IF_ERROR(reserve(packed_rows_, 2 * plan_.packed_row_bytes, "packed rows"));
    }
    if (plan_.attention_bytes > 0) {
      SPRY_RETURN_IF_ERROR(reserve(attention_, plan_.attention_bytes, "attention"));
      SPRY_RETURN_IF_CUDA_ERROR(cudaMemset(attention_.data(), 0, plan_.attention_bytes));
    }
    SPRY_RETURN_IF_ERROR(reserve(kv_, plan_.kv_block_bytes * limits_.num_blocks, "KV blocks"));
    SPRY_RETURN_IF_CUDA_ERROR(cudaMemset(state_.data(), 0, plan_.state_bytes));
    SPRY_ASSIGN_OR_RETURN(rings_memory_,
                          MappedMemory::Allocate(plan_.ring_bytes + plan_.rule_image_bytes));
    return {};
  }

  // The ring memory is the host's counter, all slots, all results, then the images of rule slots.
  void MapRings() {
    rings_ = {.slot_bytes = StepSlotBytes(limits_),
              .result_bytes = StepResultBytes(limits_),
              .size = limits_.ring_size};
    const int64_t results_at = kCounterBytes + rings_.slot_bytes * rings_.size;
    launched_ = reinterpret_cast<uint64_t*>(rings_memory_.host());
    rings_.launched = reinterpret_cast<uint64_t*>(rings_memory_.device());
    rings_.first_slot = MapStepSlot(limits_, rings_memory_.device() + kCounterBytes);
    rings_.first_result = MapStepResult(limits_, rings_memory_.device() + results_at);
    rings_.rule_images = rings_memory_.device() + plan_.ring_bytes;
    rings_.counters = reinterpret_cast<StepCounters*>(state_.data());
    rings_.early_slot = MapStepSlot(limits_, state_.data() + kCounterBytes);
    for (int i = 0; i < rings_.size; ++i) {
      std::byte* host = rings_memory_.host();
      slots_.push_back(MapStepSlot(limits_, host + kCounterBytes + i * rings_.slot_bytes));
      results_.push_back(MapStepResult(limits_, host + results_at + i * rings_.result_bytes));
    }
    step_state_ = MapStepState(limits_, state_.data() + kCounterBytes + rings_.slot_bytes);
  }

  Status Bind() {
    context_.emplace(program_, limits_, plan_,
                     BindContext::Regions{.weights = weights_.data(),
                                          .arena = arena_.data(),
                                          .kv = kv_.data(),
                                          .best_draws = best_draws_.data(),
                                          .packed_rows = packed_rows_.data(),
                                          .attention = attention_.data()},
                     rings_);
    const KernelTable table = MakeKernelTable(options_.attention);
    for (const OpRecord& op : program_.ops) {
      SPRY_ASSIGN_OR_RETURN(const BoundLaunch launch,
                            table[static_cast<int>(op.id)](op, *context_));
      launches_.push_back(launch);
    }
    graphs_.emplace(stream_.get(), options_.pieces,
                    [this](const Piece& piece, const LaunchShape& shape) {
                      return LaunchOps(piece, shape, options_.overlap);
                    });
    return {};
  }

  // Steps of decoding rows are met sooner or later, so no request shall wait for their capture.
  Status CaptureDecodes() {
    size_t free_before = 0;
    size_t free_after = 0;
    size_t all = 0;
    SPRY_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_before, &all));
    for (const LaunchShape& bucket :
         DecodeBuckets(limits_, plan_.logits.drawn_rows, plan_.logits.gathers)) {
      SPRY_RETURN_IF_ERROR(graphs_->Get(bucket).status());
    }
    SPRY_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
    SPRY_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&free_after, &all));
    buckets_at_start_ = graphs_->buckets();
    graph_bytes_at_start_ = free_before - std::min(free_before, free_after);
    return {};
  }

  bool HasGraphs() const { return options_.pieces.size() > 1 || !options_.pieces.front().splits; }
  Piece AllOps() const {
    return {.begin = 0, .end = static_cast<int>(launches_.size()), .splits = true};
  }

  // The first attention op, as piecewise steps launch it.
  Status MeasureAttention(LaunchCosts& costs) {
    const auto is_attention = [](const OpRecord& op) { return op.id == OpId::kAttention; };
    const auto found = std::ranges::find_if(program_.ops, is_attention);
    if (found == program_.ops.end()) return {};
    const int at = static_cast<int>(found - program_.ops.begin());
    const LaunchWork call = [this, at] {
      constexpr bool kOverlap = false;
      return LaunchOps({.begin = at, .end = at + 1}, last_shape_, kOverlap);
    };
    constexpr int kCalls = 16;
    SPRY_ASSIGN_OR_RETURN(costs.attention_kernels, CountKernels(stream_.get(), call));
    SPRY_ASSIGN_OR_RETURN(costs.attention_ns, MedianLaunchNanos(stream_.get(), kCalls, call));
    return {};
  }

  // A graph of the bucket for each piece, and between them the splitting ops with the step's true
  // counts.
  Status LaunchPieces(StepGraphs graphs) {
    // A kernel cannot begin before the end of the graph before it anyway.
    constexpr bool kOverlap = false;
    for (size_t i = 0; i < graphs.size(); ++i) {
      const Piece& piece = graphs_->pieces()[i];
      if (graphs[i] != nullptr) {
        SPRY_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(graphs[i], stream_.get()));
      } else if (piece.splits) {
        // stage marks tokens beyond the true counts as padding for the graphs that follow.
        const bool stages = program_.ops[piece.begin].id == OpId::kStage;
        SPRY_RETURN_IF_ERROR(LaunchOps(piece, stages ? last_bucket_ : last_shape_, kOverlap));
      }
    }
    return {};
  }

  // Of a step that drew from its logits and did not keep them (draw.cuh). What they are made from
  // is still there.
  Status MakeLogits() {
    LaunchShape shape = last_shape_;
    shape.draws = false;
    for (int i = 0; i < static_cast<int>(launches_.size()); ++i) {
      const OpRecord& op = program_.ops[i];
      if (op.id != OpId::kLinear || op.outputs[0].buffer != program_.logits.buffer) continue;
      SPRY_RETURN_IF_ERROR(LaunchOps({.begin = i, .end = i + 1}, shape, options_.overlap));
    }
    return {};
  }

  Status LaunchOps(const Piece& piece, const LaunchShape& shape, bool overlap) {
    const LaunchContext context{.stream = stream_.get(),
                                .shape = shape,
                                .processors = options_.processors,
                                .overlap = overlap,
                                .warpgroups = options_.warpgroups,
                                .clusters = options_.clusters};
    for (int i = piece.begin; i < piece.end; ++i) {
      const BoundLaunch& bound = launches_[i];
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
  DeviceMemory packed_rows_;
  DeviceMemory attention_;
  MappedMemory rings_memory_;
  Stream stream_;
  StepRings rings_;
  uint64_t* launched_ = nullptr;  // of rings_, as the host addresses it
  StepState step_state_;
  std::vector<StepSlot> slots_;
  std::vector<StepResult> results_;
  std::optional<BindContext> context_;
  std::vector<BoundLaunch> launches_;
  std::optional<GraphCache> graphs_;
  RowKindTracker row_kinds_;
  LaunchShape last_shape_;  // of the step launched last
  LaunchShape last_bucket_;
  int buckets_at_start_ = 0;
  size_t graph_bytes_at_start_ = 0;
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
