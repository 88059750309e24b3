// The tensor types that a GGUF file may name: their numbers, block sizes and names are ggml's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace spry {

struct GgmlType {
  uint32_t number;
  std::string_view name;
  int block_elements;
  int block_bytes;
  std::optional<DType> dtype;  // nothing: spry does not serve it
};

inline constexpr char kGgmlTypesServed[] =
    "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS";

// Nothing for a number that ggml has never given or has taken back.
const GgmlType* FindGgmlType(uint32_t number);

}  // namespace spry
