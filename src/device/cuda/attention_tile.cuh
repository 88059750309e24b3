// What the attention kernels of 16-bit caches have in common: how positions are cut, and where the
// keys and values of a tile lie in shared memory.
#pragma once

#include <cstdint>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/mma.cuh"
#include "ops/attention/attention.h"

namespace spry::cuda {

inline constexpr int kTileKeys = 16;

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

  __device__ int32_t BlockOf(int32_t position) const {
    return block_table[position >> block_shift];
  }
};

// Keys and values, [16, kDim] each, in 16-byte chunks; chunk c of key j is at c ^ Swizzle(j), so
// that all reads meet all banks.
template <typename T, int kDim>
struct KvTile {
  static constexpr int kChunks = kDim / 8;  // of a key
  uint4 keys[kTileKeys][kChunks];
  uint4 values[kTileKeys][kChunks];

  __device__ static int Swizzle(int key) { return (key & 1) << 2 | (key >> 1 & 3); }

  // Starts copies of half the tile: the 8 positions from `begin` on, which are in `block`, the
  // smallest of which hold 8. What lies at `end` and beyond is zero. One warp.
  __device__ void FetchHalf(int half, const KvRows<T>& kv, int32_t block, int32_t begin,
                            int32_t end) {
    constexpr int kKeysAtOnce = kWarpThreads / kChunks;
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int chunk = lane % kChunks;
    const int first_key = lane / kChunks;
    const int slot = chunk ^ Swizzle(first_key);
    const T* from = kv.keys + block * kv.block_elements +
                    ((begin & ((1 << kv.block_shift) - 1)) + first_key) * kDim + chunk * 8;
#pragma unroll
    for (int key = 0; key < kTileKeys / 2; key += kKeysAtOnce) {  // and first_key: other bits
      const bool inside = begin + first_key + key < end;
      uint4* to = &keys[half * 8 + first_key + key][slot ^ Swizzle(key)];
      CopyAsync16(to, from + key * kDim, inside);
      CopyAsync16(to + kTileKeys * kChunks, from + key * kDim + kv.value_distance, inside);
    }
  }
};

}  // namespace spry::cuda
