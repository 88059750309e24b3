#include "device/cpu/step_ring.h"

#include <atomic>
#include <utility>

#include "ops/advance.h"
#include "ops/stage.h"

namespace spry {

StepRing::StepRing(const StepLimits& limits, MemoryRegion memory)
    : limits_(limits), memory_(std::move(memory)) {
  CHECK(limits.ring_size >= 1 && memory_.bytes() >= StepMemoryBytes(limits));
  views_ = MapStepMemory(limits, memory_.data());
}

BoundCall StepRing::StageCall() const { return {.op = OpId::kStage, .run = Stage, .args = this}; }
BoundCall StepRing::AdvanceCall() const {
  return {.op = OpId::kAdvance, .run = Advance, .args = this};
}

void StepRing::Stage(const void* args, const StepState& state, Worker& worker) {
  const StepRing& ring = *static_cast<const StepRing*>(args);
  const StepSlot& slot = ring.slot(ring.step_);
  if (worker.index() == 0) {
    *state.header = *slot.header;
    for (int32_t i = 0; i < slot.header->num_joins; ++i) ApplyJoin(state, slot.joins[i]);
    for (int32_t i = 0; i < slot.header->num_block_writes; ++i) {
      ApplyBlockWrite(ring.limits_, state, slot.block_writes[i]);
    }
  }
  worker.Barrier();
  const Share share = ShareOf(slot.header->num_rows, worker);
  for (int64_t r = share.begin; r < share.end; ++r) {
    const int32_t index = static_cast<int32_t>(r);
    const StagedRow row = StageRow(state, slot.rows[r], index);
    for (int32_t i = 0; i < row.num_tokens; ++i) StageToken(state, slot, row, index, i);
  }
}

void StepRing::Advance(const void* args, const StepState& state, Worker& worker) {
  const StepRing& ring = *static_cast<const StepRing*>(args);
  const StepResult& result = ring.result(ring.step_);
  const Share rows = ShareOf(state.header->num_rows, worker);
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    AdvanceRow(state, static_cast<int32_t>(r), result.rows[r]);
  }
  const Share samples = ShareOf(state.header->num_samples, worker);
  for (int64_t l = samples.begin; l < samples.end; ++l) {
    if (!ReportsLogprobs(state, static_cast<int32_t>(l))) continue;
    result.logprobs[l] = state.sampled[l].logprobs;
  }
  worker.Barrier();
  if (worker.index() != 0) return;
  std::atomic_ref<uint64_t>(*result.step).store(ring.step_.value() + 1, std::memory_order_release);
}

}  // namespace spry
