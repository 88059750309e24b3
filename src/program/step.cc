#include "program/step.h"

namespace spry {
namespace {

constexpr int64_t kAlignBytes =
    64;  // a cache line, so that arrays written by different threads part

// Places arrays one after another. Without a base it only counts.
class Layout {
 public:
  explicit Layout(std::byte* base) : base_(base) {}

  template <typename T>
  T* Place(int64_t count) {
    T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + bytes_);
    bytes_ +=
        (count * static_cast<int64_t>(sizeof(T)) + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

StepSlot PlaceSlot(const StepLimits& limits, Layout& layout) {
  StepSlot slot;
  slot.header = layout.Place<StepHeader>(1);
  slot.rows = layout.Place<SlotRow>(limits.max_rows);
  slot.token_ids = layout.Place<int32_t>(limits.max_tokens);
  slot.joins = layout.Place<SlotJoin>(limits.max_rows);
  slot.block_writes = layout.Place<SlotBlockWrite>(limits.max_block_writes);
  return slot;
}

StepState PlaceState(const StepLimits& limits, Layout& layout) {
  StepState state;
  state.header = layout.Place<StepHeader>(1);
  state.row_states = layout.Place<RowState>(limits.max_rows);
  state.block_tables = layout.Place<int32_t>(int64_t{limits.max_rows} * limits.max_blocks_per_row);
  state.rows = layout.Place<StagedRow>(limits.max_rows);
  state.token_ids = layout.Place<int32_t>(limits.max_tokens);
  state.positions = layout.Place<int32_t>(limits.max_tokens);
  state.token_rows = layout.Place<int32_t>(limits.max_tokens);
  state.token_slots = layout.Place<int32_t>(limits.max_tokens);
  state.sample_tokens = layout.Place<int32_t>(limits.max_samples);
  state.sample_rows = layout.Place<int32_t>(limits.max_samples);
  state.sample_targets = layout.Place<int32_t>(limits.max_samples);
  state.sampled = layout.Place<Sampled>(limits.max_samples);
  return state;
}

StepResult PlaceResult(const StepLimits& limits, Layout& layout) {
  StepResult result;
  result.step = layout.Place<uint64_t>(1);
  result.rows = layout.Place<RowResult>(limits.max_rows);
  result.logprobs = layout.Place<TokenLogprobs>(limits.max_samples);
  return result;
}

template <auto kPlace>
int64_t Bytes(const StepLimits& limits) {
  Layout layout(nullptr);
  kPlace(limits, layout);
  return layout.bytes();
}

template <auto kPlace>
auto Map(const StepLimits& limits, std::byte* base) {
  Layout layout(base);
  return kPlace(limits, layout);
}

}  // namespace

int64_t StepSlotBytes(const StepLimits& limits) { return Bytes<PlaceSlot>(limits); }
StepSlot MapStepSlot(const StepLimits& limits, std::byte* base) {
  return Map<PlaceSlot>(limits, base);
}
int64_t StepStateBytes(const StepLimits& limits) { return Bytes<PlaceState>(limits); }
StepState MapStepState(const StepLimits& limits, std::byte* base) {
  return Map<PlaceState>(limits, base);
}
int64_t StepResultBytes(const StepLimits& limits) { return Bytes<PlaceResult>(limits); }
StepResult MapStepResult(const StepLimits& limits, std::byte* base) {
  return Map<PlaceResult>(limits, base);
}

int64_t StepMemoryBytes(const StepLimits& limits) {
  return StepStateBytes(limits) +
         (StepSlotBytes(limits) + StepResultBytes(limits)) * limits.ring_size;
}

StepMemory MapStepMemory(const StepLimits& limits, std::byte* base) {
  StepMemory memory{.state = MapStepState(limits, base)};
  base += StepStateBytes(limits);
  for (int32_t i = 0; i < limits.ring_size; ++i) {
    memory.slots.push_back(MapStepSlot(limits, base));
    base += StepSlotBytes(limits);
    memory.results.push_back(MapStepResult(limits, base));
    base += StepResultBytes(limits);
  }
  return memory;
}

}  // namespace spry
