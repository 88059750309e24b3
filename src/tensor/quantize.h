// Rounds rows to the block types that plain weights can be loaded as, as ggml's reference quantiser
// does, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace spry {

constexpr bool CanQuantizeTo(DType dtype) { return dtype == DType::kQ4_0 || dtype == DType::kQ8_0; }

// Writes RowBytes(dtype, elements) bytes. False, with the rest unwritten, when a value is not
// finite or a block's scale is beyond float16.
[[nodiscard]] bool QuantizeRow(DType dtype, const float* row, int64_t elements, std::byte* out);

}  // namespace spry
