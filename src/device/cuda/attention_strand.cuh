// Attention of few query rows on tensor cores, one warp and one strand at a time, for up to 8 rows
// that share a KV head. Keys and values go from the cache straight to the registers that the
// products want them in; no shared memory holds them, so what is on its way is limited by registers
// alone and a place is filled again as soon as it is used.
//
// Scores are K [16, D] by Q^T [D, 8]: with g = lane / 4 and t = lane % 4 a lane has chunks of 8
// elements t, t + 4 ... of keys g and g + 8. The order of a head's elements is free, the same for
// Q and K. Outputs are V^T [D, 16] by P^T [16, 8]: a lane has chunks g, g + 8 of keys 2t, 2t + 1,
// 2t + 8 and 2t + 9, of which it makes pairs. All sums are taken in the order of WarpRows
// (attention_rows.cuh), so the bits are the same.
#pragma once

#include <cstdint>

#include "device/cuda/attention_merge.cuh"
#include "device/cuda/normalize.cuh"

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
  const T* keys;      // of block 0: this lane's chunk t of key g
  int32_t to_values;  // from there to chunk g of value 2t
  const int32_t* block_table;

  __device__ static int Group() { return static_cast<int>(threadIdx.x) % kWarpThreads / 4; }
  __device__ static int Quad() { return static_cast<int>(threadIdx.x) % 4; }

  __device__ LaneRows(const T* first_key, int64_t value_distance, const int32_t* block_table)
      : keys(Pinned(first_key + Group() * kDim + Quad() * 8)),
        to_values(static_cast<int32_t>(value_distance) + (2 * Quad() - Group()) * kDim +
                  (Group() - Quad()) * 8),
        block_table(Pinned(block_table)) {}
};

// Where the two halves of a tile begin in the cache, in chunks of 8 elements from block 0 on. A
// half has 8 positions, those of one block, the smallest of which hold 8. Where such a block would
// lie beyond the last position it is the last one's.
struct TilePlace {
  uint32_t halves[2];

  template <int kDim>
  __device__ void Find(const int32_t* block_table, const CacheSteps& steps, uint32_t begin,
                       uint32_t last) {
    halves[0] = Half<kDim>(block_table, steps, begin);
    halves[1] = steps.block_shift == 3 ? Half<kDim>(block_table, steps, min(begin + 8, last))
                                       : halves[0] + kDim;
  }

 private:
  template <int kDim>
  __device__ static uint32_t Half(const int32_t* block_table, const CacheSteps& steps,
                                  uint32_t first) {
    return block_table[first >> steps.block_shift] * steps.block_chunks +
           (first & ((1u << steps.block_shift) - 8)) * (kDim / 8);
  }
};

// A lane's part of the keys of a tile, or of its values: 8 elements each.
template <typename T, int kDim>
struct TileParts {
  static constexpr int kChunks = kDim / 32;  // of half a tile
  // Of keys [h][c]: chunk t + 4 * c of key g + 8 * h. Of values [h][j * (kDim / 64) + c]: chunk g +
  // 8 * c of value 2t + j + 8 * h.
  uint4 parts[2][kChunks];

  __device__ void Fetch(const LaneRows<T, kDim>& rows, const TilePlace& place, bool values, int h,
                        int c) {
    const T* from = rows.keys + uint64_t{place.halves[h]} * 8 + (values ? rows.to_values : 0);
    parts[h][c] = LoadOnce(from + c * (values ? 64 : 32));
  }
  __device__ void Fetch(const LaneRows<T, kDim>& rows, const TilePlace& place, bool values) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) Fetch(rows, place, values, h, c);
    }
  }
  // Of keys: adds what the chunks of number c give to the scores. [e]: key g + e / 2 * 8 of row
  // 2t + e % 2.
  __device__ void Score(const uint4& query, int c, float (&scores)[4]) const {
    const uint4 low = parts[0][c];
    const uint4 high = parts[1][c];
    Mma(T{}, scores, make_uint4(low.x, high.x, low.y, high.y), query.x, query.y);
    Mma(T{}, scores, make_uint4(low.z, high.z, low.w, high.w), query.z, query.w);
  }
  // Of values: adds to the outputs of chunks g + 8 * c what the weights make of them.
  __device__ void AddOutputs(int c, const uint32_t (&weights)[2], float (*outputs)[4]) const {
    constexpr int kNext = kDim / 64;
    const uint4 v[4] = {parts[0][c], parts[0][kNext + c], parts[1][c], parts[1][kNext + c]};
    AddPairs(outputs[0], v[0].x, v[1].x, v[2].x, v[3].x, weights);
    AddPairs(outputs[1], v[0].y, v[1].y, v[2].y, v[3].y, weights);
    AddPairs(outputs[2], v[0].z, v[1].z, v[2].z, v[3].z, weights);
    AddPairs(outputs[3], v[0].w, v[1].w, v[2].w, v[3].w, weights);
  }
  // The key of position `last` of the tile from where it is. Those beyond become the same: finite
  // numbers, which weigh nothing, where the cache holds who knows what.
  __device__ void PutLastKey(int32_t last, const T* k) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (LaneRows<T, kDim>::Group() + 8 * h < last) continue;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        parts[h][c] = *reinterpret_cast<const uint4*>(k + c * 32 + LaneRows<T, kDim>::Quad() * 8);
      }
    }
  }
  __device__ void PutLastValue(int32_t last, const T* v) {
    constexpr int kWidth = kDim / 64;  // chunks of a value
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        if (2 * LaneRows<T, kDim>::Quad() + i / kWidth + 8 * h < last) continue;
        parts[h][i] =
            *reinterpret_cast<const uint4*>(v + i % kWidth * 64 + LaneRows<T, kDim>::Group() * 8);
      }
    }
  }

 private:
  // Two neighbouring elements of four values.
  __device__ static void AddPairs(float (&sums)[4], uint32_t v0, uint32_t v1, uint32_t v2,
                                  uint32_t v3, const uint32_t (&weights)[2]) {
    const uint4 a = make_uint4(__byte_perm(v0, v1, 0x5410), __byte_perm(v0, v1, 0x7632),
                               __byte_perm(v2, v3, 0x5410), __byte_perm(v2, v3, 0x7632));
    Mma(T{}, sums, a, weights[0], weights[1]);
  }
};

// An 8 x 8 matrix of 16-bit elements, transposed: lane (g, t) gives elements [g][2t], [g][2t + 1].
__device__ inline uint32_t Transposed(uint32_t pair) {
  uint32_t out;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

// A strand, for up to kRows rows. A lane has rows 2t and 2t + 1; with one row all eight are that
// one, and a lane keeps its softmax once.
template <typename T, int kDim, int kRows>
struct StrandState {
  static constexpr int kMine = kRows == 1 ? 1 : 2;
  // [c * 4 + i][e]: element c * 64 + g * 8 + 2 * i + e / 2 of row 2t + e % 2.
  float output[kDim / 16][4];
  SoftmaxPart softmax[kMine];
  uint32_t weights[kStrandTiles][2];  // of values 2t, 2t + 1 and of those plus 8, for row g

  // The scores of its tiles become its softmax and weights. [j][e]: key g + e / 2 * 8 of tile j of
  // row 2t + e % 2. `begin`: the first tile's; `ends`: of what a row sees, none below `shortest`.
  template <int kTiles>
  __device__ void Weigh(float (&scores)[kTiles][4], uint32_t begin, const uint32_t (&ends)[kMine],
                        uint32_t shortest, float scale) {
    const int g = LaneRows<T, kDim>::Group();
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint32_t first = begin + j * kStrandStep;
      if (first + kTileKeys <= shortest) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (first + g + e / 2 * 8 >= ends[e % kMine]) scores[j][e] = -INFINITY;
      }
    }
    float low[kMine];
    float high[kMine];
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      float largest = -INFINITY;
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        largest = fmaxf(largest, fmaxf(scores[j][i], scores[j][2 + i]));
      }
#pragma unroll
      for (int step = 4; step < kWarpThreads; step *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
      }
      softmax[i].max = largest * scale;
      low[i] = 0.0f;
      high[i] = 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int e = 0; e < 2 * kMine; ++e) {
        const int i = e % kMine;
        float& score = scores[j][e / kMine * 2 + i];
        score = Exp2(fmaf(score, scale, -Finite(softmax[i].max)));
        float& sum = e / kMine == 0 ? low[i] : high[i];
        sum += score;
      }
      using Pair = typename PairOf<T>::Type;
      const Pair first = FromFloats(T{}, scores[j][0], scores[j][kMine - 1]);
      const Pair second = FromFloats(T{}, scores[j][2], scores[j][2 + kMine - 1]);
      weights[j][0] = Transposed(*reinterpret_cast<const uint32_t*>(&first));
      weights[j][1] = Transposed(*reinterpret_cast<const uint32_t*>(&second));
    }
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      float sum = (low[i] + __shfl_xor_sync(0xffffffffu, low[i], 4)) +
                  (high[i] + __shfl_xor_sync(0xffffffffu, high[i], 4));
      sum += __shfl_xor_sync(0xffffffffu, sum, 8);
      sum += __shfl_xor_sync(0xffffffffu, sum, 16);
      softmax[i].sum = sum;
    }
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) output[n][e] = 0.0f;
    }
  }
};

}  // namespace spry::cuda
