// Rewrites a traced Program into fewer ops with the same meaning: the one place where fusion
// happens, for every device.
//   linear, activation                -> linear with activation
//   linear, add (other operand ready) -> linear with residual
// and, where the device has them:
//   layer_norm or rms_norm, linear    -> linear with norm
//   linear of two, gated_activation   -> gated linear
//   write_kv, attention               -> attention with k and v among its inputs
//   rope, such an attention           -> attention with rope
#pragma once

#include "program/program.h"

namespace spry {

// The optional ones that a device has.
struct Fusions {
  bool norm_into_linear = false;
  bool gate_into_linear = false;
  bool write_kv_into_attention = false;
  bool rope_into_attention = false;  // with the one before
};

void FuseOps(Program& program, const Fusions& fusions = {});

}  // namespace spry
