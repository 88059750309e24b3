// Attention on tensor cores, one warp and one tile of 16 positions at a time, for up to 16 query
// rows: the heads that share a KV head, of one token or of several.
//
// Keys and values lie in shared memory, [16, D] each, in 16-byte chunks; chunk c of key j is at
// c ^ Swizzle(j), so that the reads below meet all banks. Scores are Q [16, D] by K^T [D, 8]; their
// accumulators are, as they lie, the operand P [16, 16] of the product with V [16, D]. The order of
// a head's elements is free, the same for Q and K: a lane takes 8 that are neighbours.
#pragma once

#include <cstdint>

#include "device/cuda/element.cuh"
#include "device/cuda/mma.cuh"
#include "device/cuda/normalize.cuh"
#include "ops/attention/softmax_state.h"
#include "ops/math.h"

namespace spry::cuda {

inline constexpr int kTileKeys = 16;
inline constexpr int kTileRows = 16;

// exp of a difference of scores, by the instruction: what it weighs is rounded to 16 bits.
__device__ inline float FastExp(float x) {
  constexpr float kLog2E = 1.44269504f;
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x * kLog2E));
  return value;
}

// Where the keys and values of one request and KV head lie.
template <typename T>
struct KvRows {
  const T* keys = nullptr;  // of block 0
  int64_t value_distance = 0;
  int64_t block_elements = 0;
  const int32_t* block_table = nullptr;
  int32_t block_shift = 0;  // block sizes are powers of two
};

template <typename T, int kDim>
struct KvTile {
  static constexpr int kChunks = kDim / 8;  // of a key
  uint4 keys[kTileKeys][kChunks];
  uint4 values[kTileKeys][kChunks];

  __device__ static int Swizzle(int key) { return (key & 1) << 2 | (key >> 1 & 3); }

  // Starts copies of positions [begin, end); what lies beyond is zero. One warp.
  __device__ void Fetch(const KvRows<T>& kv, int32_t begin, int32_t end) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    constexpr int kKeysAtOnce = kWarpThreads / kChunks;
    const int chunk = lane % kChunks;
    const T* halves[2];  // 8 keys each: those of one block, the smallest of which hold 8
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int32_t first = begin + 8 * h < end ? begin + 8 * h : begin;
      halves[h] = kv.keys + kv.block_table[first >> kv.block_shift] * kv.block_elements +
                  (first & ((1 << kv.block_shift) - 1)) * kDim + chunk * 8;
    }
    const int first_key = lane / kChunks;
    const int slot = chunk ^ Swizzle(first_key);
#pragma unroll
    for (int i = 0; i < kTileKeys / kKeysAtOnce; ++i) {
      const int key = i * kKeysAtOnce;  // and first_key, which has other bits
      const bool inside = begin + first_key + key < end;
      const T* from = halves[key / 8] + (first_key + key % 8) * kDim;
      uint4* to = &keys[first_key + key][slot ^ Swizzle(key)];
      CopyAsync16(to, from, inside);
      CopyAsync16(to + kTileKeys * kChunks, from + kv.value_distance, inside);
    }
  }
};

// What one warp knows of a softmax for 16 rows. With g = lane / 4 and t = lane % 4 a lane has rows
// g and g + 8: outputs [2t, 2t + 1] of every 8.
template <typename T, int kDim>
struct TileRows {
  static constexpr int kHalves = 2;
  uint4 query[kHalves][kDim / 32];  // this lane's elements of rows g and g + 8
  float output[kDim / 8][4];
  float max[kHalves];
  float sum[kHalves];  // over this lane's keys

  __device__ void Reset() {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) output[n][e] = 0.0f;
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      max[h] = -INFINITY;
      sum[h] = 0.0f;
    }
  }

  // Null: a row of zeros.
  __device__ void LoadQuery(int half, const T* row) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      query[half][c] = row == nullptr ? make_uint4(0, 0, 0, 0)
                                      : *reinterpret_cast<const uint4*>(row + c * 32 + t * 8);
    }
  }

  // The scores of a tile: [n][e], keys n * 8 + 2t + e % 2 of row g + e / 2 * 8.
  __device__ void Score(const KvTile<T, kDim>& tile, float (&scores)[2][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int g = lane / 4;
    const int t = lane % 4;
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      const uint4 low = query[0][c];
      const uint4 high = query[1][c];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int key = n * 8 + g;
        const uint4 k = tile.keys[key][(c * 4 + t) ^ KvTile<T, kDim>::Swizzle(key)];
        Mma(T{}, scores[n], make_uint4(low.x, high.x, low.y, high.y), k.x, k.y);
        Mma(T{}, scores[n], make_uint4(low.z, high.z, low.w, high.w), k.z, k.w);
      }
    }
  }

  // Adds positions begin ..., those up to last[half] for a row. `scale` is of the scores.
  __device__ void Add(const KvTile<T, kDim>& tile, int32_t begin, const int32_t (&last)[kHalves],
                      float scale) {
    using Pair = typename PairOf<T>::Type;
    const int t = static_cast<int>(threadIdx.x) % 4;
    float scores[2][4] = {};
    Score(tile, scores);
    uint32_t weights[2][2] = {};  // P: [half][n]
    float keep[2] = {1.0f, 1.0f};
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      float largest = max[h];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[n][2 * h + e];
          score = begin + n * 8 + 2 * t + e <= last[h] ? score * scale : -INFINITY;
          largest = fmaxf(largest, score);
        }
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      if (largest == -INFINITY) continue;  // nothing yet: weights are 0
      keep[h] = FastExp(max[h] - largest);
      max[h] = largest;
      float part = 0.0f;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float first = FastExp(scores[n][2 * h] - largest);
        const float second = FastExp(scores[n][2 * h + 1] - largest);
        part += first + second;
        const Pair pair = FromFloats(T{}, first, second);
        weights[h][n] = *reinterpret_cast<const uint32_t*>(&pair);
      }
      sum[h] = fmaf(sum[h], keep[h], part);
    }
    if (__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) {
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) output[n][e] *= keep[e / 2];
      }
    }
    AddValues(tile, make_uint4(weights[0][0], weights[1][0], weights[0][1], weights[1][1]));
  }

  __device__ void AddValues(const KvTile<T, kDim>& tile, const uint4& weights) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int key = lane % 16;
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      const int chunk = n + lane / 16;
      uint32_t b[4];  // of 8 outputs, then of the next 8
      LoadTransposed(b, &tile.values[key][chunk ^ KvTile<T, kDim>::Swizzle(key)]);
      Mma(T{}, output[n], weights, b[0], b[1]);
      Mma(T{}, output[n + 1], weights, b[2], b[3]);
    }
  }
};

}  // namespace spry::cuda
