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

  // One key and value from elsewhere. One warp, after its copies have come.
  __device__ void Put(int key, const T* k, const T* v) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    if (lane < kChunks) {
      keys[key][lane ^ Swizzle(key)] = *reinterpret_cast<const uint4*>(k + lane * 8);
      values[key][lane ^ Swizzle(key)] = *reinterpret_cast<const uint4*>(v + lane * 8);
    }
    __syncwarp();
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
      keep[h] = Exp(max[h] - largest);
      max[h] = largest;
      float part = 0.0f;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float first = Exp(scores[n][2 * h] - largest);
        const float second = Exp(scores[n][2 * h + 1] - largest);
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

// An 8 x 8 matrix of 16-bit elements, transposed: lane (g, t) gives elements [g][2t], [g][2t + 1].
__device__ inline uint32_t Transposed(uint32_t pair) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

// The same for up to 8 rows, with the operands of both products the other way round, K Q^T and
// V^T P^T, so that there is no accumulator without a row: half of the products and registers. All
// sums are taken in the order of TileRows. A lane has rows 2t and 2t + 1, keys g and g + 8.
template <typename T, int kDim>
struct FewTileRows {
  uint4 query[kDim / 32];      // of row g
  float output[kDim / 16][4];  // [n][e]: element n * 16 + e / 2 * 8 + g of row 2t + e % 2
  float max[2];
  float sum[2];  // over keys 2 (g / 2), 2 (g / 2) + 1 and those plus 8

  __device__ void Reset() {
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) output[n][e] = 0.0f;
    }
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
  }

  // Null: a row of zeros.
  __device__ void LoadQuery(const T* row) {
    const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      query[c] = row == nullptr ? make_uint4(0, 0, 0, 0)
                                : *reinterpret_cast<const uint4*>(row + c * 32 + t * 8);
    }
  }

  // [e]: key g + e / 2 * 8 of row 2t + e % 2.
  __device__ void Score(const KvTile<T, kDim>& tile, float (&scores)[4]) const {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    const int t = static_cast<int>(threadIdx.x) % 4;
    const int slot = t ^ KvTile<T, kDim>::Swizzle(g);  // of g + 8 too
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      const uint4* at = &tile.keys[g][slot ^ c % 2 * 4] + c / 2 * 8;
      const uint4 low = at[0];
      const uint4 high = at[8 * KvTile<T, kDim>::kChunks];
      Mma(T{}, scores, make_uint4(low.x, high.x, low.y, high.y), query[c].x, query[c].y);
      Mma(T{}, scores, make_uint4(low.z, high.z, low.w, high.w), query[c].z, query[c].w);
    }
  }

  // Adds positions [begin, last], 16 at most. `scale` is of the scores.
  __device__ void Add(const KvTile<T, kDim>& tile, int32_t begin, int32_t last, float scale) {
    using Pair = typename PairOf<T>::Type;
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    float scores[4] = {};
    Score(tile, scores);
    float keep[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& low = scores[i];
      float& high = scores[2 + i];
      low = begin + g <= last ? low * scale : -INFINITY;
      high = begin + g + 8 <= last ? high * scale : -INFINITY;
      float largest = fmaxf(max[i], fmaxf(low, high));
#pragma unroll
      for (int step = 4; step < kWarpThreads; step *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
      }
      const bool any = largest != -INFINITY;  // else weights are 0
      keep[i] = any ? Exp(max[i] - largest) : 1.0f;
      max[i] = largest;
      low = any ? Exp(low - largest) : 0.0f;
      high = any ? Exp(high - largest) : 0.0f;
      const float part = (low + __shfl_xor_sync(0xffffffffu, low, 4)) +
                         (high + __shfl_xor_sync(0xffffffffu, high, 4));
      sum[i] = fmaf(sum[i], keep[i], part);
    }
    if (__any_sync(0xffffffffu, keep[0] != 1.0f || keep[1] != 1.0f)) {
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) output[n][e] *= keep[e % 2];
      }
    }
    const Pair low = FromFloats(T{}, scores[0], scores[1]);
    const Pair high = FromFloats(T{}, scores[2], scores[3]);
    AddValues(tile, Transposed(*reinterpret_cast<const uint32_t*>(&low)),
              Transposed(*reinterpret_cast<const uint32_t*>(&high)));
  }

  __device__ void AddValues(const KvTile<T, kDim>& tile, uint32_t low, uint32_t high) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int key = lane % 16;
    const int slot = lane / 16 ^ KvTile<T, kDim>::Swizzle(key);
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t a[4];  // of 8 outputs, then of the next 8
      LoadTransposed(a, &tile.values[key][slot ^ n % 4 * 2] + n / 4 * 8);
      Mma(T{}, output[n], make_uint4(a[0], a[2], a[1], a[3]), low, high);
    }
  }
};

}  // namespace spry::cuda
