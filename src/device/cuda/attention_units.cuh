// Units of attention, each shared by some warps, and what their threads ask: a decode step has one
// for every KV head of every token.
#pragma once

#include "device/cuda/block_reduce.cuh"

namespace spry::cuda {

inline constexpr int kStrands = 8;  // of a unit, the most warps that share it

template <int kWarps_, int kBlockWarps_>
struct Units {
  static constexpr int kWarps = kWarps_;  // of a unit
  static constexpr int kBlockWarps = kBlockWarps_;
  static constexpr int kBlockThreads = kBlockWarps * kWarpThreads;
  static constexpr int kUnits = kBlockWarps / kWarps;  // of a block
  static constexpr int kThreads = kWarps * kWarpThreads;

  __device__ static int Unit() { return static_cast<int>(threadIdx.x) / kThreads; }
  __device__ static int Thread() { return static_cast<int>(threadIdx.x) % kThreads; }
  __device__ static int Warp() { return Thread() / kWarpThreads; }
  // All warps of the unit.
  __device__ static void Sync() {
    if constexpr (kWarps == 1) {
      __syncwarp();
    } else if constexpr (kUnits == 1) {
      __syncthreads();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(Unit() + 1), "n"(kThreads) : "memory");
    }
  }
};

}  // namespace spry::cuda
