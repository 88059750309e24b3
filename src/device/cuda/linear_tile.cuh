// What the tensor-core linears share: how K is cut, and what happens to a sum.
#pragma once

#include <cstdint>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/linear_mma.h"
#include "device/cuda/mma.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/weight_tiles.h"
#include "ops/activation.h"

namespace spry::cuda {

inline constexpr int kMaxFewRows = 352;  // of buckets whose true number of rows is not asked for
inline constexpr int kLinearWarps = kSegments;
inline constexpr int kLinearThreads = kLinearWarps * kWarpThreads;
inline constexpr int kTileQuads = kTileElements / 8;  // 16-byte words of a tile, two a lane

// Tiles of 32 along K in each segment; the last ones may be shorter or empty.
__host__ __device__ constexpr int SegmentTiles(int depth) {
  return (depth / kTileDepth + kSegments - 1) / kSegments;
}

// One tile of weights of one lane: the A operands of two products.
struct TileOfWeights {
  uint4 first;
  uint4 second;

  __device__ void Load(const uint4* p) {
    first = LoadWeights(p);
    second = LoadWeights(p + kWarpThreads);
  }
};

// B of a tile: 8 neighbouring elements of the lane's row.
template <typename T>
__device__ uint4 LoadB(const T* p) {
  return *reinterpret_cast<const uint4*>(p);
}

template <typename T>
__device__ void AddTile(float (&sums)[4], const TileOfWeights& a, const uint4& b) {
  Mma(T{}, sums, a.first, b.x, b.y);
  Mma(T{}, sums, a.second, b.z, b.w);
}

// Adds a finished segment, and starts the next.
template <int kTokenTiles>
__device__ void EndSegment(float (&totals)[kTokenTiles][4], float (&sums)[kTokenTiles][4],
                           bool is_first) {
#pragma unroll
  for (int j = 0; j < kTokenTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      totals[j][e] = is_first ? sums[j][e] : totals[j][e] + sums[j][e];
      sums[j][e] = 0.0f;
    }
  }
}

template <typename Y>
__device__ Y* OutputAt(const MmaLinearArgs& args, int32_t row, int32_t n) {
  return reinterpret_cast<Y*>(args.y.data) + row * args.y.stride + n;
}

// Null without a residual.
template <typename Y>
__device__ const Y* ResidualAt(const MmaLinearArgs& args, int32_t row, int32_t n) {
  if (args.residual.data == nullptr) return nullptr;
  return reinterpret_cast<const Y*>(args.residual.data) + row * args.residual.stride + n;
}

// 0 without biases.
__device__ inline float BiasAt(const MmaLinearArgs& args, int32_t n) {
  return args.bias == nullptr ? 0.0f : args.bias[n];
}

// 0 without a residual.
template <typename Y>
__device__ float LoadResidual(const MmaLinearArgs& args, int32_t row, int32_t n) {
  const Y* from = ResidualAt<Y>(args, row, n);
  return from == nullptr ? 0.0f : ToFloat(*from);
}

// What becomes of sums of one thread before a residual. The activation is asked for once and the
// long one is a loop: as much code for every value would not stay in the instruction cache.
template <int kCount>
__device__ void ActivateSums(const MmaLinearArgs& args, const float (&bias)[kCount],
                             float (&sums)[kCount]) {
  if (args.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += bias[i];
  }
  if (args.activation == Activation::kRelu) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] = ApplyActivation(Activation::kRelu, sums[i]);
  } else if (args.activation != Activation::kNone) {
#pragma unroll 1
    for (int turn = 0; turn < kCount; ++turn) {  // registers have no index: the values go round
      const float first = ApplyActivation(args.activation, sums[0]);
#pragma unroll
      for (int i = 0; i + 1 < kCount; ++i) sums[i] = sums[i + 1];
      sums[kCount - 1] = first;
    }
  }
}

// What becomes of sums of one thread: bias, activation, residual.
template <int kCount>
__device__ void FinishSums(const MmaLinearArgs& args, const float (&bias)[kCount],
                           const float (&residual)[kCount], float (&sums)[kCount]) {
  ActivateSums(args, bias, sums);
  if (args.residual.data != nullptr) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i] += residual[i];
  }
}

template <typename Y>
__device__ void StoreValue(const MmaLinearArgs& args, float value, int32_t row, int32_t n) {
  if (sizeof(Y) < 4 || args.stores) *OutputAt<Y>(args, row, n) = FromFloat<Y>(value);
}

// A warp's 16 outputs, from n on, of eights of rows, in the form of mma.cuh. `totals` become what
// is stored.
template <typename Y, int kTokenTiles>
__device__ void StoreTotals(const MmaLinearArgs& args, float (&totals)[kTokenTiles][4],
                            int32_t first_row, int32_t num_rows, int32_t n) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  n += lane / 4;
  float bias[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) bias[e] = BiasAt(args, n + e / 2 * 8);
#pragma unroll
  for (int j = 0; j < kTokenTiles; ++j) {
    const int32_t row = first_row + j * kMmaTokens + lane % 4 * 2;
    float residual[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      residual[e] = LoadResidual<Y>(args, min(row + e % 2, num_rows - 1), n + e / 2 * 8);
    }
    FinishSums(args, bias, residual, totals[j]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (row + e % 2 < num_rows) StoreValue<Y>(args, totals[j][e], row + e % 2, n + e / 2 * 8);
    }
  }
}

// A warp's 16 outputs of eights of rows, in the form of mma.cuh, to shared memory: `to` is the
// first output of the first row. Stores meet all banks where rows are 4 floats apart, modulo 32.
template <int kEights, int kStride>
__device__ void PutSums(const float* sums, float* to) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  to += lane % 4 * 2 * kStride + lane / 4;
#pragma unroll
  for (int j = 0; j < kEights; ++j, to += kMmaTokens * kStride) {
    to[0] = sums[j * 4];
    to[kStride] = sums[j * 4 + 1];
    to[8] = sums[j * 4 + 2];
    to[kStride + 8] = sums[j * 4 + 3];
  }
}

// Eight neighbouring outputs of one row.
template <typename Y>
struct OutputRun {
  float residual[8] = {};

  __device__ void LoadResidual(const MmaLinearArgs& args, int32_t row, int32_t n) {
    const Y* from = ResidualAt<Y>(args, row, n);
    if (from == nullptr) return;
    Y values[8];
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Y)) / 2; ++i) {
      reinterpret_cast<uint4*>(values)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) residual[e] = ToFloat(values[e]);
  }
  // The sums become what is stored.
  __device__ void Store(const MmaLinearArgs& args, const float (&bias)[8], float (&sums)[8],
                        int32_t row, int32_t n) const {
    FinishSums(args, bias, residual, sums);
    if (sizeof(Y) == 4 && !args.stores) return;
    Y values[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = FromFloat<Y>(sums[e]);
    Y* to = OutputAt<Y>(args, row, n);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Y)) / 2; ++i) {
      const uint4 bits = reinterpret_cast<const uint4*>(values)[i];
      if constexpr (sizeof(Y) == 4) {
        __stcs(reinterpret_cast<uint4*>(to) + i, bits);  // logits: nobody reads them soon
      } else {
        reinterpret_cast<uint4*>(to)[i] = bits;
      }
    }
  }
};

// Shared rows of B in elements: 16-byte reads of 4 lanes from each of 8 rows meet all banks evenly
// when rows are 64 bytes apart, modulo 128.
__host__ __device__ constexpr int32_t SharedStride(int32_t depth) {
  return (depth + 63) / 64 * 64 + 32;
}

}  // namespace spry::cuda
