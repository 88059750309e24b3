// Loops that do one thing as fast as an instruction set can: reading, and multiply-adds without
// memory. What they take per second is what no kernel can exceed (machine_speed.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace spry {

inline constexpr int64_t kReadStride = 256;  // bytes that a reading loop takes at a time

struct ProductLoop {
  const char* isa;              // "avx512"
  const char* type;             // of the factors: "float32", "bfloat16", "int8"
  int64_t multiply_adds;        // of a round
  void (*run)(int64_t rounds);  // products that do not wait for one another
};

// `bytes` is a multiple of kReadStride.
using ReadLoop = void (*)(const std::byte* from, int64_t bytes);

void ReadAvx2(const std::byte* from, int64_t bytes);
void ReadAvx512(const std::byte* from, int64_t bytes);

ProductLoop Avx2F32Products();
ProductLoop Avx2Int8Products();  // as kernels without VNNI do them, with three instructions
ProductLoop Avx512F32Products();
ProductLoop Avx512Bf16Products();  // AVX512-BF16
ProductLoop Avx512Int8Products();  // AVX512-VNNI
ProductLoop AmxBf16Products();
ProductLoop AmxInt8Products();

}  // namespace spry
