// Reductions inside a block, and the lane order of sums that must give the same bits everywhere.
#pragma once

namespace spry::cuda {

inline constexpr int kWarpThreads = 32;

// `op` over the values of all kThreads threads of the block; every thread gets the result. The
// order is fixed, but use it only where no order can matter.
template <int kThreads, typename T, typename Op>
__device__ T BlockReduce(T value, const Op& op) {
  __shared__ T warps[kThreads / kWarpThreads];
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    value = op(value, __shfl_xor_sync(0xffffffffu, value, step));
  }
  if (threadIdx.x % kWarpThreads == 0) warps[threadIdx.x / kWarpThreads] = value;
  __syncthreads();
  T result = warps[0];
  for (int w = 1; w < kThreads / kWarpThreads; ++w) result = op(result, warps[w]);
  __syncthreads();  // warps is free again
  return result;
}

// Folds kLanes neighbouring lanes 16 -> 8 -> 4 -> 2 -> 1, lane j taking lane j + half; the first
// lane has the sum. `mask` names these lanes in the warp.
template <int kLanes>
__device__ inline float FoldLanes(float sum, unsigned mask) {
  for (int half = kLanes / 2; half > 0; half /= 2) sum += __shfl_down_sync(mask, sum, half, kLanes);
  return sum;
}

}  // namespace spry::cuda
