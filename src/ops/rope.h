// rope: rotates q [T, H, D] and k [T, Hkv, D] in place by their positions.
//   table [P, rotary_dim] f32: for each position cos(0..rotary_dim/2), then sin. Made on the host
//   in double once, so that every device rotates by the same bits.
// Pairs are (i, i + rotary_dim / 2), or (2i, 2i + 1) when interleaved (GGUF's llama family).
#pragma once

#include <span>

#include "program/tracer.h"

namespace spry {

struct RopeParams {
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t rotary_dim = 0;  // even, <= head_dim; the rest of a head passes unchanged
  bool interleaved = false;
};

// The table for these frequencies (radians per position, [rotary_dim / 2]), one for all layers.
// Cosines and sines are multiplied by `magnitude`.
WeightId AddRopeTable(Tracer& tracer, std::span<const double> frequencies, double magnitude = 1.0);

void Rope(Tracer& tracer, const Tensor& q, const Tensor& k, WeightId table,
          const RopeParams& params);

}  // namespace spry
