// embed: x[t] = table[token_ids[t]] (+ positions[p(t) + position_offset], p(t) the token's
// position)
//   or   x[t] = positions[p(t) + position_offset] alone, for a model that projects its tokens
//   before
//        positions are added (OPT-350m)
//   x          [T, E] activation dtype
//   table      [V, E] any weight dtype, quantised too
//   positions  [P, E] optional (OPT)
// Token ids and positions are step metadata at fixed addresses, not arguments. Padding rows give 0.
#pragma once

#include "program/tracer.h"

namespace spry {

struct EmbedParams {
  int32_t position_offset = 0;
  bool positions_only = false;  // the op's one weight is the table of positions
};

Tensor Embed(Tracer& tracer, const WeightHandle& table);
Tensor Embed(Tracer& tracer, const WeightHandle& table, const WeightHandle& positions,
             const EmbedParams& params);
Tensor EmbedPositions(Tracer& tracer, const WeightHandle& positions, EmbedParams params);

}  // namespace spry
