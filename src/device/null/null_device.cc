#include "device/null/null_device.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "ops/advance.h"
#include "ops/random.h"
#include "ops/stage.h"

namespace spry {

int32_t NullToken(int32_t token, int32_t position, int32_t vocab_size) {
  const int32_t low = vocab_size / 2;
  const uint32_t mixed =
      Mix32(static_cast<uint32_t>(token) * 31u + static_cast<uint32_t>(position));
  return low + static_cast<int32_t>(mixed % static_cast<uint32_t>(vocab_size - low));
}

namespace {

using Memory = std::unique_ptr<std::byte, decltype(&std::free)>;

// Pages that nobody touches (rule slots) take no memory.
Result<Memory> AllocateZeros(int64_t bytes) {
  void* memory = std::calloc(bytes, 1);
  if (memory == nullptr) {
    return ResourceExhausted(
        fmt::format("the system refuses {} bytes of memory; lower --max-num-seqs, or raise the "
                    "limit on virtual memory (ulimit -v)",
                    bytes));
  }
  return Memory(static_cast<std::byte*>(memory), std::free);
}

class NullExecutable final : public Executable {
 public:
  NullExecutable(const Program& program, const StepLimits& limits, const NullDeviceOptions& options,
                 Memory memory)
      : limits_(limits),
        options_(options),
        vocab_size_(static_cast<int32_t>(program.vocab_size)),
        memory_(std::move(memory)) {
    StepMemory views = MapStepMemory(limits, memory_.get());
    state_ = views.state;
    slots_ = std::move(views.slots);
    results_ = std::move(views.results);
    ready_nanos_.resize(limits.ring_size);
  }

  StepSlot Slot(StepId step) override { return slots_[step.value() % slots_.size()]; }

  Status Launch(StepId step) override {
    const size_t ring = step.value() % slots_.size();
    const StepSlot& slot = slots_[ring];
    const StepHeader& header = *slot.header;
    for (int i = 0; i < header.num_joins; ++i) ApplyJoin(state_, slot.joins[i]);
    for (int i = 0; i < header.num_block_writes; ++i) {
      ApplyBlockWrite(limits_, state_, slot.block_writes[i]);
    }
    for (int r = 0; r < header.num_rows; ++r) Run(slot, r, results_[ring]);
    if (options_.step_nanos > 0) {
      const int64_t now = options_.clock->NowNanos();
      last_ready_nanos_ = std::max(now, last_ready_nanos_) + options_.step_nanos;
      ready_nanos_[ring] = last_ready_nanos_;
    }
    *results_[ring].step = step.value() + 1;
    return {};
  }

  Result<const StepResult*> Poll(StepId step) override {
    const size_t ring = step.value() % results_.size();
    CHECK(*results_[ring].step == step.value() + 1);
    if (options_.step_nanos > 0 && options_.clock->NowNanos() < ready_nanos_[ring]) {
      return static_cast<const StepResult*>(nullptr);
    }
    return static_cast<const StepResult*>(&results_[ring]);
  }

  // Rules cost the host what they cost it elsewhere, and change no token.
  RuleSlot RuleImage(int32_t slot) override { return state_.rule_slot(slot); }

  Status CopyLogits(std::span<float>) override {
    return Unimplemented("the null device computes no logits; use --device cpu");
  }

 private:
  // Only sampled tokens matter here, so the token arrays stay untouched.
  void Run(const StepSlot& slot, int32_t r, StepResult& result) {
    StageRow(state_, slot.rows[r], r);
    const StagedRow& row = state_.rows[r];
    const int32_t first = row.num_tokens - row.num_samples;
    if (row.live) {
      for (int32_t i = first; i < row.num_tokens; ++i) {
        StageSample(state_, slot, row, r, i);
        Sampled& sampled = state_.sampled[row.sample_index + i - first];
        sampled.token = NextToken(slot, r, row.sample_index + i - first, i);
      }
    }
    AdvanceRow(state_, r, result.rows[r]);
    if (!row.live) return;
    for (int32_t l = row.sample_index; l < row.sample_index + row.num_samples; ++l) {
      if (!ReportsLogprobs(state_, l)) continue;
      const TokenId token(state_.sampled[l].token);
      result.logprobs[l] = {.rank = 1, .chosen = {.token = token}};
    }
  }

  // What sample l, of token i of the row, judges or chooses.
  int32_t NextToken(const StepSlot& slot, int32_t r, int32_t l, int32_t i) const {
    if (state_.sample_targets[l] >= 0) return state_.sample_targets[l];
    const StagedRow& row = state_.rows[r];
    const int32_t token = slot.rows[r].decode ? state_.row_states[row.row].last_token
                                              : slot.token_ids[row.query_start + i];
    return NullToken(token, row.start + i, vocab_size_);
  }

  StepLimits limits_;
  NullDeviceOptions options_;
  int32_t vocab_size_;
  Memory memory_;
  StepState state_;
  std::vector<StepSlot> slots_;
  std::vector<StepResult> results_;
  std::vector<int64_t> ready_nanos_;
  int64_t last_ready_nanos_ = 0;
};

class NullDevice final : public Device {
 public:
  explicit NullDevice(const NullDeviceOptions& options) : options_(options) {}

  std::string_view name() const override { return "null"; }
  DeviceInfo info() const override {
    return {
        .description = "computes nothing", .memory_bytes = kMemory, .free_memory_bytes = kMemory};
  }
  std::vector<AttentionBackend> attention_backends() const override {
    return {{.name = "null",
             .description = "accepts everything, computes nothing",
             .activations = {DType::kF32, DType::kBF16, DType::kF16},
             .kvs = {DType::kF32, DType::kBF16, DType::kF16},
             .window = true,
             .soft_cap = true,
             .alibi = true,
             .sinks = true}};
  }
  DType ActivationDType(DType compute) const override { return compute; }

  Result<MemoryNeeds> Plan(const Program&, const CompileOptions& options) const override {
    return MemoryNeeds{.step = StepMemoryBytes(options.limits), .kv_per_block = kBytesPerBlock};
  }
  Result<std::unique_ptr<Executable>> Compile(const Program& program,
                                              const CompileOptions& options) override {
    SPRY_ASSIGN_OR_RETURN(Memory memory, AllocateZeros(StepMemoryBytes(options.limits)));
    return std::unique_ptr<Executable>(
        std::make_unique<NullExecutable>(program, options.limits, options_, std::move(memory)));
  }

 private:
  // Blocks are counted, not stored: this much "memory" and that much per block give 2^24 blocks.
  static constexpr int64_t kBytesPerBlock = 1 << 10;
  static constexpr int64_t kMemory = kBytesPerBlock << 24;
  NullDeviceOptions options_;
};

}  // namespace

std::unique_ptr<Device> MakeNullDevice(const NullDeviceOptions& options) {
  CHECK(options.step_nanos == 0 || options.clock != nullptr);
  return std::make_unique<NullDevice>(options);
}

}  // namespace spry
