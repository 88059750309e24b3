// What all rows of a step have in common, found by the host: kernels that serve only such rows then
// stand in the step's graph.
#pragma once

#include <cstdint>
#include <vector>

#include "program/step.h"

namespace spry::cuda {

struct RowKinds {
  bool plain = false;     // every row is greedy or has a temperature, and asks for nothing else
  bool in_order = false;  // row r has one token, and its logits are the r-th
};

class RowKindTracker {
 public:
  explicit RowKindTracker(int32_t max_rows) : plain_(max_rows, 1) {}

  // Takes the slot's joins; called for every step, in order.
  RowKinds Update(const StepSlot& slot);

 private:
  std::vector<uint8_t> plain_;  // by permanent row
};

}  // namespace spry::cuda
