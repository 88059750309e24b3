// What src/device/cpu/amx/attention.cc must give, to the bit, in scalar code: its order of
// operations, and what the instructions do with a pair of bf16, a small number and a rounding.
#pragma once

#include <span>
#include <vector>

#include "ops/attention/attention.h"

namespace spry::testing {

// One token's query head, and the keys and values (rounded to bf16) of the positions up to its own.
struct TileQuery {
  AttentionParams params;  // of the layer
  float slope = 0.0f;      // with alibi
  float sink = 0.0f;       // with sinks
  std::span<const float> q;
  int position = 0;
  std::vector<const float*> keys, values;  // by position
};

std::vector<float> TileAttention(const TileQuery& query);

}  // namespace spry::testing
