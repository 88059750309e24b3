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

// Four 8 x 8 matrices of 16-bit elements, transposed: lane l gives the address of row l % 8 of
// matrix l / 8 in shared memory, and gets elements [2t][g], [2t + 1][g] of each.
__device__ inline void LoadTransposed(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(address)
               : "memory");
}

// The other way round: elements [2t][g], [2t + 1][g] of each to its rows.
__device__ inline void StoreTransposed(void* row, const uint32_t (&in)[4]) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3])
               : "memory");
}

// 16 bytes from global to shared memory; zeros where `inside` is false.
__device__ inline void CopyAsync16(void* shared, const void* global, bool inside) {
  const auto target = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global),
               "r"(bytes));
}

// Four bytes, likewise; through the first cache, which has the rest of their line.
__device__ inline void CopyAsync4(void* shared, const void* global, bool inside) {
  const auto target = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = inside ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(global),
               "r"(bytes));
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
