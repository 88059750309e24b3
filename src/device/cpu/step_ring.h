// The step memory of the CPU device: the rings of slots and results that the host shares, the state
// that kernels are bound to, and the two ops that pass between them.
#pragma once

#include <vector>

#include "device/cpu/kernel.h"
#include "device/cpu/memory_region.h"
#include "program/step.h"

namespace spry {

class StepRing {
 public:
  // `memory` has at least StepMemoryBytes(limits), all zero.
  StepRing(const StepLimits& limits, MemoryRegion memory);
  // Bound calls point to it.
  StepRing(const StepRing&) = delete;
  StepRing& operator=(const StepRing&) = delete;

  const StepState& state() const { return views_.state; }
  const StepSlot& slot(StepId step) const { return At(views_.slots, step); }
  const StepResult& result(StepId step) const { return At(views_.results, step); }

  // The step that stage and advance serve from now on.
  void SetStep(StepId step) { step_ = step; }
  BoundCall StageCall() const;
  BoundCall AdvanceCall() const;

 private:
  template <typename T>
  static const T& At(const std::vector<T>& ring, StepId step) {
    return ring[step.value() % ring.size()];
  }
  static void Stage(const void* args, const StepState& state, Worker& worker);
  static void Advance(const void* args, const StepState& state, Worker& worker);

  StepLimits limits_;
  MemoryRegion memory_;
  StepMemory views_;
  StepId step_{0};
};

}  // namespace spry
