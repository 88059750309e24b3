// The meaning of every weight type, as f32: what any repacked form must agree with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace spry {

// Writes `elements` floats of one row. `elements` is whole blocks of the dtype; f32, f16, bf16 and
// the block types only.
void DequantizeRow(DType dtype, const std::byte* row, int64_t elements, float* out);

}  // namespace spry
