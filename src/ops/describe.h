// A Program in words, for `spry inspect --program` and for tests.
#pragma once

#include <string>

#include "program/program.h"

namespace spry {

// One line: "qkv[T, 960] = linear(norm[T, 576], model.layers.0.self_attn.q_proj.weight + 2)".
std::string Describe(const Program& program, const OpRecord& op);
std::string Describe(const Program& program);

}  // namespace spry
