// The tensor-core product that every card since Ampere has: D[16, 8] += A[16, 16] B[16, 8], f32
// sums. Weights are A, tokens are B. With g = lane / 4 and t = lane % 4 a lane holds
//   a[0..3]: A[g][2t, 2t+1], A[g+8][2t, 2t+1], A[g][2t+8, 2t+9], A[g+8][2t+8, 2t+9]
//   b[0..1]: B[2t, 2t+1][g], B[2t+8, 2t+9][g]
//   d[0..3]: D[g][2t], D[g][2t+1], D[g+8][2t], D[g+8][2t+1]
// (PTX ISA, mma.m16n8k16 for 16-bit floats.)
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace spry::cuda {

inline constexpr int kMmaOutputs = 16;  // rows of A
inline constexpr int kMmaTokens = 8;    // columns of B
inline constexpr int kMmaDepth = 16;    // K of one product

__device__ inline void Mma(__half, float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ inline void Mma(__nv_bfloat16, float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// 16 bytes of weights, read once: past the first cache.
__device__ inline uint4 LoadWeights(const uint4* p) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(p));
  return value;
}

}  // namespace spry::cuda
