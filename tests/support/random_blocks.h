// Blocks of any block type with every code and sub-scale, the extreme ones too, and sane scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"
#include "tensor/float16.h"

namespace spry {

// Where a block has its f16 scale, and its f16 minimum or scale of minima; -1: it has none.
struct ScalePlaces {
  int scale = 0;
  int minimum = -1;
};
inline ScalePlaces ScalePlacesOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K: return {.scale = 0, .minimum = 2};
    case DType::kQ2_K: return {.scale = 80, .minimum = 82};
    case DType::kQ3_K: return {.scale = 108};
    case DType::kQ6_K: return {.scale = 208};
    default: return {};
  }
}

// One block of random bytes from `next` (any uniform random integers), then the scales.
template <typename Next>
void FillBlock(DType dtype, float scale, float minimum, Next&& next, std::byte* block) {
  for (int i = 0; i < Traits(dtype).block_bytes; ++i) block[i] = static_cast<std::byte>(next());
  const ScalePlaces places = ScalePlacesOf(dtype);
  const uint16_t scale_bits = FloatToF16(scale), minimum_bits = FloatToF16(minimum);
  std::memcpy(block + places.scale, &scale_bits, 2);
  if (places.minimum >= 0) std::memcpy(block + places.minimum, &minimum_bits, 2);
}

}  // namespace spry
