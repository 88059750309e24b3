// How fast rope turns each pair of a model: its base, and what scales it, which is in the config
// or, in GGUF files, in tensors.
#pragma once

#include <vector>

#include "checkpoint/checkpoint.h"
#include "program/tracer.h"

namespace spry {

// Radians per position for each pair, [head_dim / 2]. Fails the tracer, and is then of no use, when
// a tensor of factors is misshapen or holds what is no positive number.
std::vector<double> RopeFrequencies(Tracer& tracer, const ModelConfig& config,
                                    const Weights& weights);

}  // namespace spry
