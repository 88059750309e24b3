// Where a draw is collected (draw.cuh), for those who launch kernels.
#pragma once

#include <cstdint>

#include "program/step.h"

namespace spry::cuda {

struct DrawArgs {
  uint64_t* best = nullptr;  // [max_samples], packed scores, 0 between steps; null: nobody draws
  const StepHeader* header = nullptr;
  const int32_t* sample_rows = nullptr;
  const StagedRow* rows = nullptr;
  const RowState* row_states = nullptr;
};

inline DrawArgs MakeDrawArgs(std::byte* best, const StepState& state) {
  return {.best = reinterpret_cast<uint64_t*>(best),
          .header = state.header,
          .sample_rows = state.sample_rows,
          .rows = state.rows,
          .row_states = state.row_states};
}

}  // namespace spry::cuda
