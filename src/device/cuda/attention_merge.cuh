// How the parts of a softmax become one: warps of a block by their common maximum, in ascending
// order, then segments of KV one after another (ops/attention/softmax_state.h), wherever they were
// computed.
#pragma once

#include <cstdint>

#include "device/cuda/attention_tile.cuh"
#include "ops/attention/softmax_state.h"

namespace spry::cuda {

inline constexpr int kAttentionWarps = 8;
inline constexpr int kAttentionThreads = kAttentionWarps * kWarpThreads;

// The states of all warps for one segment.
template <int kDim, int kRows>
struct MergeSpace {
  static constexpr int kStride = kDim + 8;  // rows of a warp's store meet all banks
  float max[kRows][kAttentionWarps];
  float sum[kRows][kAttentionWarps];
  float factor[kRows][kAttentionWarps];
  SoftmaxState joined[kRows];
  __align__(16) float output[kAttentionWarps][kRows][kStride];

  template <typename T>
  __device__ void Put(const TileRows<T, kDim>& rows) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = g + h * 8;
      float total = rows.sum[h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      if (t == 0) {
        max[row][warp] = rows.max[h];
        sum[row][warp] = total;
      }
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        *reinterpret_cast<float2*>(&output[warp][row][n * 8 + 2 * t]) =
            make_float2(rows.output[n][2 * h], rows.output[n][2 * h + 1]);
      }
    }
  }

  // The segment's state of each row and what each warp counts in it. A warp without a key adds
  // nothing; a row without a key has the maximum -infinity. Between barriers.
  __device__ void Join() {
    const int row = static_cast<int>(threadIdx.x) / kAttentionWarps;
    const int warp = static_cast<int>(threadIdx.x) % kAttentionWarps;
    if (row >= kRows) return;  // whole warps
    float largest = max[row][warp];
#pragma unroll
    for (int step = 1; step < kAttentionWarps; step *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    }
    const float own = largest == -INFINITY ? 0.0f : Exp(max[row][warp] - largest);
    factor[row][warp] = own;
    SoftmaxState state{.max = largest};
#pragma unroll
    for (int w = 0; w < kAttentionWarps; ++w) {
      const int lane = static_cast<int>(threadIdx.x) % kWarpThreads / kAttentionWarps;
      const float other = __shfl_sync(0xffffffffu, own, lane * kAttentionWarps + w);
      state.sum = fmaf(sum[row][w], other, state.sum);
    }
    if (warp == 0) joined[row] = state;
  }

  // Output [d] of a row.
  __device__ float Output(int row, int d) const {
    float merged = 0.0f;
#pragma unroll
    for (int w = 0; w < kAttentionWarps; ++w) {
      merged = fmaf(output[w][row][d], factor[row][w], merged);
    }
    return merged;
  }
};

// Of the outputs [rows, kDim] of a block, thread i has elements i, i + kAttentionThreads ...: what
// is known after some segments.
template <int kDim, int kRows>
struct MergedRows {
  static constexpr int kMine = (kRows * kDim + kAttentionThreads - 1) / kAttentionThreads;
  SoftmaxState state[kMine];
  float output[kMine] = {};

  __device__ static int Row(int m) {
    return (m * kAttentionThreads + static_cast<int>(threadIdx.x)) / kDim;
  }
  __device__ static int Column(int m) {
    return (m * kAttentionThreads + static_cast<int>(threadIdx.x)) % kDim;
  }

  // The next segment.
  __device__ void Add(int m, const SoftmaxState& part, float part_output) {
    if (part.max == -INFINITY) return;
    if (state[m].max == -INFINITY) {
      state[m] = part;
      output[m] = part_output;
      return;
    }
    const MergeFactors factors = Merge(state[m], part);
    output[m] = MergeOutput(factors, output[m], part_output);
  }
};

}  // namespace spry::cuda
