// Element types: what a number is, in files and in memory. Block types hold several elements with
// shared scales; their layouts are those of GGUF:
//   kQ4_0: 32 elements, 18 bytes: f16 scale d; 16 bytes, low nibbles = elements 0..15, high =
//          16..31; w = d * (q - 8)
//   kQ4_1: 32 elements, 20 bytes: f16 scale d, f16 minimum m; 16 bytes as above; w = d * q + m
//   kQ8_0: 32 elements, 34 bytes: f16 scale d; 32 signed bytes; w = d * q
// The layouts of the others are in block_codes.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace spry {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kU8,
  kQ4_0,
  kQ4_1,
  kQ8_0,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
};
inline constexpr int kNumDTypes = 18;

struct DTypeTraits {
  std::string_view name;
  int block_elements;  // 1 for plain types
  int block_bytes;
};

const DTypeTraits& Traits(DType dtype);

inline bool IsQuantized(DType dtype) { return Traits(dtype).block_elements > 1; }

// Bytes of a row of `elements`, which must be whole blocks.
int64_t RowBytes(DType dtype, int64_t elements);

}  // namespace spry
