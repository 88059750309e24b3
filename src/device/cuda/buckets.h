// Which steps share a graph. Arithmetic alone: nothing here needs a card.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/row_kinds.h"
#include "program/program.h"
#include "program/step.h"

namespace spry::cuda {

// Upper bounds of a step's counts, and what all its rows have in common: the key of a graph.
struct LaunchShape {
  int32_t tokens = 0;
  int32_t rows = 0;
  int32_t samples = 0;
  bool decode = false;    // every row has one token
  bool in_order = false;  // row_kinds.h
  bool draws = false;     // every row is plain, and the logits' linear draws (draw.cuh)

  bool operator==(const LaunchShape&) const = default;

  int32_t Of(RowDim dim) const { return dim == RowDim::kTokens ? tokens : samples; }
};

// The step itself, for launches outside graphs.
LaunchShape ExactShape(const StepHeader& header, const RowKinds& kinds);

// The bucket that serves a step. Kernels for few rows compute the whole bucket, so a bucket is at
// most 1/16 larger than the step where every token is sampled (exact up to 32, 8 apart up to 256,
// then 16 in each power of two). In mixed steps tokens are 8 in each power of two (at least 8
// apart) and samples 4 (exact powers up to 8): the pairs of both are what bounds their number.
LaunchShape BucketOf(const StepHeader& header, const StepLimits& limits, const RowKinds& kinds);

// The buckets of decode steps, smallest first: every one can be met. Up to `drawn_rows`, of rows
// that the logits' linear may draw, and of others; `in_order`: what such rows are to the program.
std::vector<LaunchShape> DecodeBuckets(const StepLimits& limits, int32_t drawn_rows, bool in_order);

}  // namespace spry::cuda
