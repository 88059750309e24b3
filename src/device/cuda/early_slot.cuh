// The next step's slot, on the card before that step begins. A read across the bus takes longer
// than a kernel of the step; advance, which starts while the logits are still made, has time for
// it. Steps of decoding rows alone come so; stage reads others across the bus.
#pragma once

#include <cuda/atomic>

#include <cstddef>
#include <cstdint>

#include "device/cuda/kernel.h"
#include "program/step.h"

namespace spry::cuda {

// Reads here and now: the compiler does not put it off until after a branch.
template <typename T>
__device__ T LoadNow(const T* from) {
  static_assert(sizeof(T) % sizeof(uint4) == 0);
  constexpr int kVectors = sizeof(T) / sizeof(uint4);
  uint4 bits[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits[i].x), "=r"(bits[i].y), "=r"(bits[i].z), "=r"(bits[i].w)
                 : "l"(reinterpret_cast<const uint4*>(from) + i));
  }
  T value;
  memcpy(&value, bits, sizeof(T));
  return value;
}

__device__ inline StepSlot SlotOfStep(const StepRings& rings, uint64_t step) {
  const int64_t bytes = static_cast<int64_t>(step % rings.size) * rings.slot_bytes;
  const auto further = [bytes]<typename T>(T* at) {
    return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(at) + bytes);
  };
  StepSlot slot = rings.first_slot;
  slot.header = further(slot.header);
  slot.rows = further(slot.rows);
  slot.token_ids = further(slot.token_ids);
  slot.joins = further(slot.joins);
  slot.block_writes = further(slot.block_writes);
  slot.rule_copies = further(slot.rule_copies);
  return slot;
}

// Brings the slot of `step`, if the host has launched it and it has no more rows than the block has
// threads. By all of them; what they write is seen by the next launch.
__device__ inline void BringSlot(const StepRings& rings, int32_t max_rows, uint64_t step) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto threads = static_cast<int32_t>(blockDim.x);
  const ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_system> launched(*rings.launched);
  if (!__syncthreads_and(launched.load(::cuda::memory_order_acquire) > step)) return;
  const StepSlot slot = SlotOfStep(rings, step);
  const StepHeader header = LoadNow(slot.header);
  SlotRow row;
  if (thread < max_rows) row = LoadNow(&slot.rows[thread]);
  const bool decodes = thread >= header.num_rows || row.decode != 0;
  const bool fits = header.num_rows <= threads && header.num_block_writes <= threads;
  const bool changes = header.num_joins > 0 || header.num_rule_copies > 0;
  if (!__syncthreads_and(decodes && fits && !changes)) return;
  if (thread < header.num_rows) rings.early_slot.rows[thread] = row;
  if (thread < header.num_block_writes) {
    rings.early_slot.block_writes[thread] = slot.block_writes[thread];
  }
  if (thread > 0) return;
  *rings.early_slot.header = header;
  rings.counters->early = step + 1;
}

}  // namespace spry::cuda
