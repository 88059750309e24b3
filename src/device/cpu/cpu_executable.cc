#include "device/cpu/cpu_executable.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/clock.h"

namespace spry {
namespace {

// Of the weights that no op before this one read.
int64_t CheckpointBytes(const Program& program, const OpRecord& op, std::vector<bool>& counted) {
  int64_t bytes = 0;
  for (const WeightId id : op.weights) {
    if (counted[id.value()]) continue;
    counted[id.value()] = true;
    for (const WeightHandle& part : program.weight(id).parts) {
      bytes += RowBytes(part.dtype, part.shape.elements().value_or(0));
    }
  }
  return bytes;
}

void CountWork(const StepState& state, ProfiledStep& profiled) {
  profiled.tokens = state.header->num_tokens;
  profiled.samples = state.header->num_samples;
  profiled.seen_positions = profiled.read_positions = 0;
  for (int32_t t = 0; t < profiled.tokens; ++t) {
    if (state.token_rows[t] < 0) continue;  // padding
    profiled.seen_positions += state.positions[t] + 1;
    const bool ends_row =
        t + 1 == profiled.tokens || state.token_rows[t + 1] != state.token_rows[t];
    if (ends_row) profiled.read_positions += state.positions[t] + 1;
  }
}

}  // namespace

CpuExecutable::CpuExecutable(const StepLimits& limits, std::shared_ptr<WorkerPool> pool,
                             MemoryRegion step_memory, std::unique_ptr<BindContext> context)
    : pool_(std::move(pool)), ring_(limits, std::move(step_memory)), context_(std::move(context)) {}

Result<std::unique_ptr<CpuExecutable>> CpuExecutable::Make(const Program& program,
                                                           const StepLimits& limits,
                                                           std::shared_ptr<WorkerPool> pool,
                                                           const CpuBinding& binding) {
  SPRY_ASSIGN_OR_RETURN(MemoryRegion step_memory,
                        MemoryRegion::Map(StepMemoryBytes(limits), PageKind::kNormal));
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<BindContext> context,
                        BindContext::Create(program, limits, *pool));
  auto executable = std::unique_ptr<CpuExecutable>(
      new CpuExecutable(limits, std::move(pool), std::move(step_memory), std::move(context)));
  SPRY_RETURN_IF_ERROR(executable->Bind(binding));
  return executable;
}

Status CpuExecutable::Bind(const CpuBinding& binding) {
  const Program& program = context_->program();
  SPRY_RETURN_IF_ERROR(context_->AllocateKv(binding.attention.bytes_per_block));
  int64_t total_bytes = 0, done_bytes = 0;
  std::vector<bool> counted(program.weights.size()), done(program.weights.size());
  for (const OpRecord& op : program.ops) total_bytes += CheckpointBytes(program, op, counted);
  for (const OpRecord& op : program.ops) {
    switch (op.id) {
      case OpId::kStage: calls_.push_back(ring_.StageCall()); continue;
      case OpId::kAdvance: calls_.push_back(ring_.AdvanceCall()); continue;
      default: break;
    }
    BindFn bind = binding.kernels[static_cast<int>(op.id)];
    if (op.id == OpId::kWriteKv) bind = binding.attention.bind_write_kv;
    if (op.id == OpId::kAttention) bind = binding.attention.bind_attention;
    if (bind == nullptr) {
      return Unimplemented(fmt::format("the CPU device has no kernel for {}", OpName(op.id)));
    }
    SPRY_ASSIGN_OR_RETURN(const BoundCall call, bind(op, *context_));
    calls_.push_back(call);
    done_bytes += CheckpointBytes(program, op, done);
    if (binding.progress) binding.progress(done_bytes, total_bytes);
  }
  return context_->FinishBinding();
}

void CpuExecutable::RunCalls(const void* context, Worker& worker) {
  const CpuExecutable& self = *static_cast<const CpuExecutable*>(context);
  for (const BoundCall& call : self.calls_) {
    call.run(call.args, self.ring_.state(), worker);
    worker.Barrier();
  }
}

void CpuExecutable::RunProfiledCalls(const void* context, Worker& worker) {
  const CpuExecutable& self = *static_cast<const CpuExecutable*>(context);
  ProfiledStep& profiled = *self.profiled_;
  const SteadyClock clock;
  const bool records = worker.index() == 0;
  if (records) profiled.begin_ns = clock.NowNanos();
  for (size_t i = 0; i < self.calls_.size(); ++i) {
    self.calls_[i].run(self.calls_[i].args, self.ring_.state(), worker);
    worker.Barrier();
    if (records) profiled.op_end_ns[i] = clock.NowNanos();
  }
  if (records) CountWork(self.ring_.state(), profiled);
}

Status CpuExecutable::Profile(StepProfile* profile) {
  profile_ = profile;
  return {};
}

Status CpuExecutable::Launch(StepId step) {
  ring_.SetStep(step);
  profiled_ = profile_ == nullptr ? nullptr : profile_->Next();
  context_->kv().TouchUsed(ring_.slot(step));
  pool_->Run(profiled_ == nullptr ? RunCalls : RunProfiledCalls, this);
  context_->kv().TouchAhead(ring_.slot(step));
  return {};
}

Result<const StepResult*> CpuExecutable::Poll(StepId step) {
  const StepResult& result = ring_.result(step);
  CHECK(*result.step == step.value() + 1);  // Launch has run it to its end
  return &result;
}

Status CpuExecutable::CopyLogits(std::span<float> logits) {
  const Tensor& tensor = context_->program().logits;
  if (tensor.buffer.value() < 0) return Unimplemented("this program computes no logits");
  const int32_t rows = ring_.state().header->num_samples;
  if (static_cast<int64_t>(logits.size()) != rows * tensor.width) {
    return InvalidArgument(fmt::format("room for {} logits was given; the step has {} x {}",
                                       logits.size(), rows, tensor.width));
  }
  const Matrix matrix = context_->Resolve(tensor);
  for (int32_t l = 0; l < rows; ++l) {
    std::memcpy(logits.data() + l * tensor.width, matrix.Row(l), tensor.width * sizeof(float));
  }
  return {};
}

}  // namespace spry
