// Rewrites a traced Program into fewer ops with the same meaning: the one place where fusion
// happens, for every device.
//   linear, activation                -> linear with activation
//   linear, add (other operand ready) -> linear with residual
#pragma once

#include "program/program.h"

namespace spry {

void FuseOps(Program& program);

}  // namespace spry
