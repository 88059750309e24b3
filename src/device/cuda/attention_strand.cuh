// Attention of one token on tensor cores, one warp and one tile of 16 positions at a time, for up
// to 8 query heads that share a KV head. Keys and values go from the cache straight to the
// registers that the products want them in; no shared memory holds them, so what is on its way is
// limited by registers alone and a tile's place is filled again as soon as it is used.
//
// Scores are K [16, D] by Q^T [D, 8]: with g = lane / 4 and t = lane % 4 a lane has chunks of 8
// elements t, t + 4 ... of keys g and g + 8. The order of a head's elements is free, the same for
// Q and K. Outputs are V^T [D, 16] by P^T [16, 8]: a lane has chunks g, g + 8 of keys 2t, 2t + 1,
// 2t + 8 and 2t + 9, of which it makes pairs. All sums are taken in the order of TileRows
// (attention_tile.cuh), so the bits are the same.
#pragma once

#include <cstdint>

#include "device/cuda/attention_tile.cuh"

namespace spry::cuda {

// 16 bytes of the cache, read once: past the first cache. Not through the read-only path, since the
// kernel writes another place of the same cache.
__device__ inline uint4 LoadOnce(const void* p) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(p));
  return value;
}

// An address that stays in registers: the compiler would rather compute it again in every loop.
template <typename P>
__device__ const P* Pinned(const P* p) {
  asm("" : "+l"(p));
  return p;
}

// How the cache is cut.
struct CacheSteps {
  uint32_t block_chunks = 0;  // of 8 elements
  uint32_t block_shift = 0;   // block sizes are powers of two
};

// Where the keys and values of one request and KV head lie, for one lane.
template <typename T, int kDim>
struct LaneRows {
  const T* keys;    // of block 0: this lane's chunk t of key g
  const T* values;  // chunk g of key 2t
  const int32_t* block_table;

  __device__ static int Group() { return static_cast<int>(threadIdx.x) % kWarpThreads / 4; }
  __device__ static int Quad() { return static_cast<int>(threadIdx.x) % 4; }

  __device__ LaneRows(const T* first_key, int64_t value_distance, const int32_t* block_table)
      : keys(Pinned(first_key + Group() * kDim + Quad() * 8)),
        values(Pinned(first_key + value_distance + 2 * Quad() * kDim + Group() * 8)),
        block_table(Pinned(block_table)) {}
};

// Where the two halves of a tile begin in the cache, in chunks of 8 elements from block 0 on. A
// half has 8 positions, those of one block, the smallest of which hold 8. One that lies beyond the
// last position is the last one's.
struct TilePlace {
  uint32_t halves[2];

  template <int kDim>
  __device__ void Find(const int32_t* block_table, const CacheSteps& steps, uint32_t begin,
                       uint32_t last) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint32_t first = min(begin + 8 * h, last);
      halves[h] = block_table[first >> steps.block_shift] * steps.block_chunks +
                  (first & ((1u << steps.block_shift) - 8)) * (kDim / 8);
    }
  }
};

// A lane's part of a tile: 8 elements each.
template <typename T, int kDim>
struct TileParts {
  uint4 keys[2][kDim / 32];
  uint4 values[4][kDim / 64];

  __device__ void FetchKeys(const LaneRows<T, kDim>& rows, const TilePlace& place) {
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) FetchKeys(rows, place, c);
  }
  __device__ void FetchKeys(const LaneRows<T, kDim>& rows, const TilePlace& place, int c) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      keys[h][c] = LoadOnce(rows.keys + uint64_t{place.halves[h]} * 8 + c * 32);
    }
  }
  __device__ void FetchValues(const LaneRows<T, kDim>& rows, const TilePlace& place) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const T* from = rows.values + uint64_t{place.halves[h]} * 8;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int c = 0; c < kDim / 64; ++c) {
          values[2 * h + j][c] = LoadOnce(from + j * kDim + c * 64);
        }
      }
    }
  }
  // Adds what the chunks of number c give to the scores. [e]: key g + e / 2 * 8 of head 2t + e % 2.
  __device__ void Score(const uint4& query, int c, float (&scores)[4]) const {
    const uint4 low = keys[0][c];
    const uint4 high = keys[1][c];
    Mma(T{}, scores, make_uint4(low.x, high.x, low.y, high.y), query.x, query.y);
    Mma(T{}, scores, make_uint4(low.z, high.z, low.w, high.w), query.z, query.w);
  }
  // The key and value of position `last` of the tile from where they are. Those beyond become the
  // same: finite numbers, which weigh nothing, where the cache holds who knows what.
  __device__ void PutLast(int32_t last, const T* k, const T* v) {
    const int g = LaneRows<T, kDim>::Group();
    const int t = LaneRows<T, kDim>::Quad();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (g + 8 * h < last) continue;
#pragma unroll
      for (int c = 0; c < kDim / 32; ++c) {
        keys[h][c] = *reinterpret_cast<const uint4*>(k + c * 32 + t * 8);
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (2 * t + j % 2 + j / 2 * 8 < last) continue;
#pragma unroll
      for (int c = 0; c < kDim / 64; ++c) {
        values[j][c] = *reinterpret_cast<const uint4*>(v + c * 64 + g * 8);
      }
    }
  }
};

// An 8 x 8 matrix of 16-bit elements, transposed: lane (g, t) gives elements [g][2t], [g][2t + 1].
__device__ inline uint32_t Transposed(uint32_t pair) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

// What a warp knows of a softmax over some tiles. A lane has heads 2t and 2t + 1 and keys g and
// g + 8; with one head all eight are that one, and a lane keeps its softmax once.
template <typename T, int kDim, int kHeads>
struct StrandState {
  static constexpr int kMine = kHeads == 1 ? 1 : 2;
  // [c * 4 + i][e]: element c * 64 + g * 8 + 2 * i + e / 2 of head 2t + e % 2.
  float output[kDim / 16][4];
  float max[kMine];
  float sum[kMine];  // over keys 2 (g / 2), 2 (g / 2) + 1 and those plus 8

  __device__ void Reset() {
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) output[n][e] = 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      max[i] = -INFINITY;
      sum[i] = 0.0f;
    }
  }

  // Scores become weights, and what was known counts by the new maximum. [e]: key g + e / 2 * 8 of
  // head 2t + e % 2; keys beyond `last`, counted from the tile's first, are none. `scale` is of the
  // scores.
  __device__ void Weigh(float (&scores)[4], int32_t last, float scale) {
    const int g = LaneRows<T, kDim>::Group();
    float keep[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      float& low = scores[i];
      float& high = scores[2 + i];
      low = g <= last ? low * scale : -INFINITY;
      high = g + 8 <= last ? high * scale : -INFINITY;
      float largest = fmaxf(max[i], fmaxf(low, high));
#pragma unroll
      for (int step = 4; step < kWarpThreads; step *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
      }
      keep[i] = FastExp(max[i] - largest);
      max[i] = largest;
      low = FastExp(low - largest);
      high = FastExp(high - largest);
      const float part = (low + __shfl_xor_sync(0xffffffffu, low, 4)) +
                         (high + __shfl_xor_sync(0xffffffffu, high, 4));
      sum[i] = fmaf(sum[i], keep[i], part);
    }
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) output[n][e] *= keep[e % kMine];
    }
  }

  // `scores` are weights now.
  __device__ void AddValues(const TileParts<T, kDim>& tile, const float (&scores)[4]) {
    using Pair = typename PairOf<T>::Type;
    const Pair low = FromFloats(T{}, scores[0], scores[kMine - 1]);
    const Pair high = FromFloats(T{}, scores[2], scores[2 + kMine - 1]);
    const uint32_t b0 = Transposed(*reinterpret_cast<const uint32_t*>(&low));
    const uint32_t b1 = Transposed(*reinterpret_cast<const uint32_t*>(&high));
#pragma unroll
    for (int c = 0; c < kDim / 64; ++c) {
      const uint4(&v)[4][kDim / 64] = tile.values;
      AddPairs(output[c * 4], v[0][c].x, v[1][c].x, v[2][c].x, v[3][c].x, b0, b1);
      AddPairs(output[c * 4 + 1], v[0][c].y, v[1][c].y, v[2][c].y, v[3][c].y, b0, b1);
      AddPairs(output[c * 4 + 2], v[0][c].z, v[1][c].z, v[2][c].z, v[3][c].z, b0, b1);
      AddPairs(output[c * 4 + 3], v[0][c].w, v[1][c].w, v[2][c].w, v[3][c].w, b0, b1);
    }
  }

 private:
  // Two neighbouring elements of four keys.
  __device__ static void AddPairs(float (&sums)[4], uint32_t v0, uint32_t v1, uint32_t v2,
                                  uint32_t v3, uint32_t b0, uint32_t b1) {
    const uint4 a = make_uint4(__byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
                               __byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632));
    Mma(T{}, sums, a, b0, b1);
  }
};

}  // namespace spry::cuda
