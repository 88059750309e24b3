// Plain weights whose matrices are quantised as they are read (--quantization). Norms, biases,
// tables of positions and rope factors stay as they are.
#pragma once

#include <memory>

#include "checkpoint/checkpoint.h"

namespace spry {

// `dtype` is one that QuantizeRow serves. Errors, when a weight is asked for or read: a matrix
// whose rows are no whole blocks, values that are not finite or too large. Immutable, safe from any
// thread.
std::shared_ptr<const Weights> MakeQuantizedWeights(std::shared_ptr<const Weights> plain,
                                                    DType dtype);

}  // namespace spry
