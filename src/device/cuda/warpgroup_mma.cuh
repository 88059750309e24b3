// The tensor-core product of four warps together (wgmma), which Hopper alone has and which is about
// twice as fast there as mma.sync: D[64, N] += A[64, 16] B[16, N], f32 sums, A from registers, B
// from shared memory. Warp w of the four holds rows [16 w, 16 w + 16) of A and D, each in the form
// of mma.cuh: float d[4 j + i] is its d[i] of tokens [8 j, 8 j + 8). Measured: the same bits as
// mma.sync, whatever N is.
//
// B lies in core matrices of 8 tokens x 16 bytes of K, 128 bytes in a row each. (PTX ISA, wgmma,
// K-major operands without swizzling.)
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "device/cuda/kernel.h"

// Code for the arch-specific target alone has these instructions.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SPRY_HAS_WARPGROUP_MMA 1
#else
#define SPRY_HAS_WARPGROUP_MMA 0
#endif

namespace spry::cuda {

inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kWarpgroupOutputs = 64;
inline constexpr int kCoreBytes = 128;

// Of B: the two core matrices of one product's K are kCoreBytes apart, those of neighbouring eights
// of tokens `group_bytes`.
__device__ inline uint64_t OperandAt(uint32_t shared_address, uint32_t group_bytes) {
  constexpr uint32_t kOffset = (1 << 18) - 1;  // above it: which block of a cluster
  return uint64_t{(shared_address & kOffset) / 16} | uint64_t{kCoreBytes / 16} << 16 |
         uint64_t{group_bytes / 16} << 32;
}

#if SPRY_HAS_WARPGROUP_MMA

__device__ inline void WarpgroupArrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void WarpgroupCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kLeft groups are on their way.
template <int kLeft = 0>
__device__ inline void WarpgroupWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// Sums of products that were awaited: nothing reads them before.
template <int kCount>
__device__ inline void TakeSums(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// By all threads of a cluster: who has awaited sees what the others had stored when they arrived.
__device__ inline void ArriveInCluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ inline void AwaitInCluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline void ClusterBarrier() {
  ArriveInCluster();
  AwaitInCluster();
}

// What block `rank` of the cluster has at `shared`, an address of this block's own.
__device__ inline float4 LoadFromBlock(const float* shared, int rank) {
  const auto own = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  float4 v;
  asm volatile(
      "{ .reg .b32 at; mapa.shared::cluster.u32 at, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [at]; }"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(own), "r"(rank)
      : "memory");
  return v;
}

#define SPRY_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SPRY_D8(i) SPRY_D4(i), SPRY_D4(i + 4)
#define SPRY_D16(i) SPRY_D8(i), SPRY_D8(i + 8)
#define SPRY_D32(i) SPRY_D16(i), SPRY_D16(i + 16)
#define SPRY_D64(i) SPRY_D32(i), SPRY_D32(i + 32)
#define SPRY_NAMES4 "%0, %1, %2, %3"
#define SPRY_NAMES8 SPRY_NAMES4 ", %4, %5, %6, %7"
#define SPRY_NAMES16 SPRY_NAMES8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define SPRY_NAMES32 \
  SPRY_NAMES16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SPRY_NAMES64                                                                 \
  SPRY_NAMES32                                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
// a0..a3, b and keep are the operands after the sums. keep 0: d is only written.
#define SPRY_WARPGROUP_MMA(Element, type, n, d_names, d_operands, a0, a1, a2, a3, b, keep)      \
  __device__ inline void WarpgroupMma(Element, float(&d)[n / 2], const uint4& a, uint64_t from, \
                                      int adds) {                                               \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " keep                                         \
                 ", 0;\n"                                                                       \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" d_names   \
                 "}, "                                                                          \
                 "{" a0 ", " a1 ", " a2 ", " a3 "}, " b ", p, 1, 1, 0; }"                       \
                 : d_operands                                                                   \
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(from), "r"(adds));               \
  }
#define SPRY_WARPGROUP_MMAS(Element, type)                                                        \
  SPRY_WARPGROUP_MMA(Element, type, 8, SPRY_NAMES4, SPRY_D4(0), "%4", "%5", "%6", "%7", "%8",     \
                     "%9")                                                                        \
  SPRY_WARPGROUP_MMA(Element, type, 16, SPRY_NAMES8, SPRY_D8(0), "%8", "%9", "%10", "%11", "%12", \
                     "%13")                                                                       \
  SPRY_WARPGROUP_MMA(Element, type, 32, SPRY_NAMES16, SPRY_D16(0), "%16", "%17", "%18", "%19",    \
                     "%20", "%21")                                                                \
  SPRY_WARPGROUP_MMA(Element, type, 64, SPRY_NAMES32, SPRY_D32(0), "%32", "%33", "%34", "%35",    \
                     "%36", "%37")                                                                \
  SPRY_WARPGROUP_MMA(Element, type, 128, SPRY_NAMES64, SPRY_D64(0), "%64", "%65", "%66", "%67",   \
                     "%68", "%69")

SPRY_WARPGROUP_MMAS(__half, "f16")
SPRY_WARPGROUP_MMAS(__nv_bfloat16, "bf16")

#undef SPRY_WARPGROUP_MMAS
#undef SPRY_WARPGROUP_MMA
#undef SPRY_NAMES64
#undef SPRY_NAMES32
#undef SPRY_NAMES16
#undef SPRY_NAMES8
#undef SPRY_NAMES4
#undef SPRY_D64
#undef SPRY_D32
#undef SPRY_D16
#undef SPRY_D8
#undef SPRY_D4

#endif  // SPRY_HAS_WARPGROUP_MMA

}  // namespace spry::cuda
