// Weights that no file holds, for benchmarks and tests of a shape: any name with any shape, drawn
// from (seed, name) alone, so that the bits depend neither on the order of the requests nor on the
// machine. Matrices are uniform with standard deviation 0.02, norms are 1, biases 0.
#pragma once

#include <cstdint>
#include <memory>

#include "checkpoint/checkpoint.h"

namespace spry {

// `dtype` is f32, f16 or bf16. Immutable, safe from any thread.
std::shared_ptr<const Weights> MakeDummyWeights(DType dtype, uint64_t seed);

}  // namespace spry
