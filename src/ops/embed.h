// embed: x[t] = table[token_ids[t]] (+ positions[positions[t] + position_offset])
//   x          [T, E] activation dtype
//   table      [V, E] any weight dtype, quantised too
//   positions  [P, E] optional (OPT)
// Token ids and positions are step metadata at fixed addresses, not arguments. Padding rows give 0.
#pragma once

#include "program/tracer.h"

namespace spry {

struct EmbedParams {
  int32_t position_offset = 0;
};

Tensor Embed(Tracer& tracer, const WeightHandle& table);
Tensor Embed(Tracer& tracer, const WeightHandle& table, const WeightHandle& positions,
             const EmbedParams& params);

}  // namespace spry
