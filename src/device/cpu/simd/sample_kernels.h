// What a file compiled for one instruction set offers to the sample op: passes over logits. All
// give what the reference kernel would: the same picks, the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/random.h"

namespace spry {

// Behind a list's last entry there must be room for a vector.
inline constexpr int kListSlack = 16;

struct LogitScan {
  float max = -INFINITY;  // NaNs apart
  int32_t first = 0;      // the lowest index of max
  bool has_nan = false;
};

// How a row is drawn: the largest DrawScore (ops/random.h).
struct DrawSpec {
  DrawKey key;
  float max = 0.0f;
  float temperature = 1.0f;
  float least = -INFINITY;  // a score that some id is known to have
};

// Of the largest score, the lowest id.
struct DrawBest {
  int32_t id = 0;
  float score = -INFINITY;
};

struct SampleKernels {
  LogitScan (*scan)(const float* logits, int64_t count) = nullptr;
  // ids first_id, first_id + 1 ..., or those listed.
  DrawBest (*draw)(const float* logits, int64_t count, int32_t first_id,
                   const DrawSpec& spec) = nullptr;
  DrawBest (*draw_listed)(const float* logits, const int32_t* ids, int64_t count,
                          const DrawSpec& spec) = nullptr;
  // Lists the ids of logits >= bound, in ascending order, with their logits; returns how many.
  int64_t (*collect)(const float* logits, int64_t count, float bound, int32_t* ids,
                     float* values) = nullptr;
  // The maxima of groups of group_size logits that cover all; returns the number of groups.
  int64_t (*group_maxima)(const float* logits, int64_t count, float* maxima) = nullptr;
  int64_t group_size = 0;
  // Exp((logit - max) / temperature) in whole multiples of 2^-30 (0 where logit < bound), each one
  // and their sum; `masses` may be null.
  uint64_t (*masses)(const float* logits, int64_t count, float bound, const DrawSpec& spec,
                     uint32_t* masses) = nullptr;
  // The lowest logit whose Exp((logit - max) / temperature) is not below min_p; max if none.
  float (*lowest_by_min_p)(const float* logits, int64_t count, float min_p,
                           const DrawSpec& spec) = nullptr;
  // sum of Exp(logit - max), in the reference's order.
  float (*sum_of_exp)(const float* logits, int64_t count, float max) = nullptr;
  // How many logits are above `value`, and how many equal it.
  int64_t (*count_above)(const float* logits, int64_t count, float value) = nullptr;
  int64_t (*count_equal)(const float* logits, int64_t count, float value) = nullptr;
};

const SampleKernels& Avx2SampleKernels();    // AVX2, FMA
const SampleKernels& Avx512SampleKernels();  // AVX-512 F, BW, DQ, VL

}  // namespace spry
