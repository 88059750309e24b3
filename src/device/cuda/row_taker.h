// Rows that are packed where they are made. A linear that streams its weights, or has them waiting,
// takes its rows packed (packed_rows.cuh). Where it alone reads what an op makes, that op puts them
// in their place and no kernel has to do so in between.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/kernel.h"

namespace spry::cuda {

// The linear that takes what an op makes.
struct RowTaker {
  std::byte* packed = nullptr;  // null: there is none
  int32_t outputs = 0;
  int32_t depth = 0;
  bool makes_floats = false;

  // Groups of so many times 8 rows, in a launch of `rows`; 0: it takes them as they lie.
  int32_t Eights(int32_t rows, const LaunchContext& context) const;
};

// The taker of what `maker` makes. From then on `maker` must put its rows there, in every launch or
// in those of decode steps.
RowTaker TakeRows(const OpRecord& maker, HandOver when, BindContext& context);

}  // namespace spry::cuda
