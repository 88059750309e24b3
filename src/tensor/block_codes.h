// What a block of any block type says, in one form: small whole numbers, and for each group of 16
// or 32 of them a scale and a minimum. Dequantisation and every repacking start from it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace spry {

inline constexpr int kMaxBlockElements = 256;
inline constexpr int kMinGroupElements = 16;

// The value of element i, of group g = i / GroupElements(dtype):
//   (d * scales[g]) * codes[i] - d_min * mins[g]
// or, where UsesIq4Values(dtype), with kIq4Values[codes[i]] instead of codes[i];
// in f32, where both products of a scale are exact. Types with one scale per block have scales[g] =
// 1, types whose minimum is added mins[g] = -1; a type without minimum has d_min = 0 and mins[g]
// = 0.
struct BlockCodes {
  int8_t codes[kMaxBlockElements];
  uint16_t d = 0;      // f16
  uint16_t d_min = 0;  // f16
  int8_t scales[kMaxBlockElements / kMinGroupElements];
  int8_t mins[kMaxBlockElements / kMinGroupElements];
};

// Elements that share a scale: 16 or 32.
int GroupElements(DType dtype);

constexpr bool UsesIq4Values(DType dtype) {
  return dtype == DType::kIQ4_NL || dtype == DType::kIQ4_XS;
}
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// One block of a block type. Elements and groups beyond the block's are not written.
void UnpackBlock(DType dtype, const std::byte* block, BlockCodes& out);

}  // namespace spry
