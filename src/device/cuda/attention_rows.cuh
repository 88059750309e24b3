// Attention of many query rows on tensor cores: a warp has 16 rows that share a KV head and walks
// through the strands of a segment in order, so what it knows of them stays in its registers.
//
// Keys and values are in shared memory, a strand at a time. Scores are Q [16, D] by K^T [D, 8];
// their accumulators are, as they lie, the operand P [16, 16] of the product with V [16, D]. The
// order of a head's elements is free, the same for Q and K: a lane takes 8 that are neighbours. As
// the maximum of a strand is known before its first output is, outputs are merged 16 elements at a
// time.
#pragma once

#include "device/cuda/attention_merge.cuh"
#include "device/cuda/normalize.cuh"

namespace spry::cuda {

inline constexpr int kWarpRows = 16;

template <typename T, int kDim>
struct StrandTiles {
  KvTile<T, kDim> tiles[kStrandTiles];
};

// Outputs of the segments before, each lane's own: of a block's threads, at once to all banks.
template <int kDim, int kThreads>
struct RowTotals {
  float4 outputs[kDim / 8][kThreads];
};

// With g = lane / 4 and t = lane % 4 a lane has rows g and g + 8: outputs [2t, 2t + 1] of every 8.
template <typename T, int kDim>
struct WarpRows {
  using Tile = KvTile<T, kDim>;

  uint4 query[2][kDim / 32];
  float segment[kDim / 8][4];
  SoftmaxPart segment_part[2];
  SoftmaxPart total_part[2];
  int32_t ends[2];   // of what rows g and g + 8 see
  int32_t shortest;  // end of what any row of the warp sees
  int32_t longest;

  // Null: a row of zeros.
  __device__ void LoadQuery(int half, const T* row) {
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      query[half][c] = row == nullptr ? make_uint4(0, 0, 0, 0)
                                      : *reinterpret_cast<const uint4*>(row + c * 32 + Quad() * 8);
    }
  }
  __device__ void StartSegment() {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) segment[n][e] = 0.0f;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) segment_part[h] = SoftmaxPart::Unseen();
  }
  // Afterwards `segment` and `total_part` are of all segments so far.
  template <int kThreads>
  __device__ void EndSegment(bool is_first, bool is_last, RowTotals<kDim, kThreads>& totals) {
    PartFactors factors[2];
    if (is_first) {
#pragma unroll
      for (int h = 0; h < 2; ++h) total_part[h] = segment_part[h];
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) factors[h] = Append(total_part[h], segment_part[h]);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const float4 total = totals.outputs[n][threadIdx.x];
        segment[n][0] = factors[0].Merged(total.x, segment[n][0]);
        segment[n][1] = factors[0].Merged(total.y, segment[n][1]);
        segment[n][2] = factors[1].Merged(total.z, segment[n][2]);
        segment[n][3] = factors[1].Merged(total.w, segment[n][3]);
      }
    }
    if (is_last) return;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      totals.outputs[n][threadIdx.x] =
          make_float4(segment[n][0], segment[n][1], segment[n][2], segment[n][3]);
    }
  }

  // The strand whose first tile is at `begin`: those of its tiles that a row of the warp sees.
  __device__ void AddStrand(const StrandTiles<T, kDim>& strand, int32_t begin, float scale) {
    if (begin >= longest) return;
    switch (min(kStrandTiles, (longest - begin + kStrandStep - 1) / kStrandStep)) {
      case 1: return Add<1>(strand, begin, scale);
      case 2: return Add<2>(strand, begin, scale);
      case 3: return Add<3>(strand, begin, scale);
      default: return Add<kStrandTiles>(strand, begin, scale);
    }
  }

  __device__ static int Lane() { return static_cast<int>(threadIdx.x) % kWarpThreads; }
  __device__ static int Group() { return Lane() / 4; }
  __device__ static int Quad() { return Lane() % 4; }

 private:
  // What is read from shared memory at once, for products whose sums are not each other's.
  using KeyRun = uint4[2][2];       // of two tiles: keys g and g + 8
  using ValueRun = uint32_t[2][4];  // of 32 outputs: operands of 16 each

  template <int kTiles>
  __device__ void Add(const StrandTiles<T, kDim>& strand, int32_t begin, float scale) {
    float scores[kTiles][2][4] = {};
    Score(strand, scores);
    ValueRun values[2];
    LoadValues(strand.tiles[0], 0, values[0]);
    Mask(begin, scores);
    uint32_t weights[kTiles][2][2];  // [j][n][h]
    PartFactors factors[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      factors[h] = Append(segment_part[h], Weigh(h, scale, scores, weights));
    }
#pragma unroll
    for (int n = 0; n < kDim / 32; ++n) {
      float outputs[4][4] = {};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const int step = n * kTiles + j;
        const int next = step + 1;
        if (next < kDim / 32 * kTiles) {
          LoadValues(strand.tiles[next % kTiles], next / kTiles, values[next % 2]);
        }
        const uint4 p =
            make_uint4(weights[j][0][0], weights[j][0][1], weights[j][1][0], weights[j][1][1]);
        const ValueRun& b = values[step % 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          Mma(T{}, outputs[i], p, b[i / 2][i % 2 * 2], b[i / 2][i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = segment[n * 4 + i][e];
          sum = factors[e / 2].Merged(sum, outputs[i][e]);
        }
      }
    }
  }

  // Of outputs [32 * n, 32 * n + 32).
  __device__ static void LoadValues(const Tile& tile, int n, ValueRun& values) {
    const int key = Lane() % 16;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int chunk = n * 4 + i * 2 + Lane() / 16;
      LoadTransposed(values[i], &tile.values[key][chunk ^ Tile::Swizzle(key)]);
    }
  }
  template <int kTiles>
  __device__ static void LoadKeys(const StrandTiles<T, kDim>& strand, int j, int c, KeyRun& keys) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (j + i >= kTiles) continue;
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int key = n * 8 + Group();
        keys[i][n] = strand.tiles[j + i].keys[key][(c * 4 + Quad()) ^ Tile::Swizzle(key)];
      }
    }
  }

  // [j][n][e]: keys n * 8 + 2t + e % 2 of tile j, of row g + e / 2 * 8.
  template <int kTiles>
  __device__ void Score(const StrandTiles<T, kDim>& strand, float (&scores)[kTiles][2][4]) const {
    constexpr int kRuns = (kTiles + 1) / 2;
    KeyRun keys[2];
    LoadKeys<kTiles>(strand, 0, 0, keys[0]);
#pragma unroll
    for (int c = 0; c < kDim / 32; ++c) {
      const uint4 low = query[0][c];
      const uint4 high = query[1][c];
#pragma unroll
      for (int run = 0; run < kRuns; ++run) {
        const int step = c * kRuns + run;
        const int next = step + 1;
        if (next < kDim / 32 * kRuns) {
          LoadKeys<kTiles>(strand, next % kRuns * 2, next / kRuns, keys[next % 2]);
        }
        const KeyRun& k = keys[step % 2];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int j = run * 2 + i / 2;
          if (j >= kTiles) break;
          const uint4& b = k[i / 2][i % 2];
          Mma(T{}, scores[j][i % 2], make_uint4(low.x, high.x, low.y, high.y), b.x, b.y);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int j = run * 2 + i / 2;
          if (j >= kTiles) break;
          const uint4& b = k[i / 2][i % 2];
          Mma(T{}, scores[j][i % 2], make_uint4(low.z, high.z, low.w, high.w), b.z, b.w);
        }
      }
    }
  }

  template <int kTiles>
  __device__ void Mask(int32_t begin, float (&scores)[kTiles][2][4]) const {
    if (begin + (kTiles - 1) * kStrandStep + kTileKeys <= shortest) return;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int32_t position = begin + j * kStrandStep + n * 8 + 2 * Quad() + e % 2;
          if (position >= ends[e / 2]) scores[j][n][e] = -INFINITY;
        }
      }
    }
  }

  // The scores of rows g + 8 * h become weights.
  template <int kTiles>
  __device__ static SoftmaxPart Weigh(int h, float scale, const float (&scores)[kTiles][2][4],
                                      uint32_t (&weights)[kTiles][2][2]) {
    using Pair = typename PairOf<T>::Type;
    float largest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        largest = fmaxf(largest, fmaxf(scores[j][n][2 * h], scores[j][n][2 * h + 1]));
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    SoftmaxPart part{largest * scale, 0.0f};
    const float subtracted = Finite(part.max);
    float sums[2][2] = {};  // of keys n * 8 + 2t + e
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float first = Exp2(fmaf(scores[j][n][2 * h], scale, -subtracted));
        const float second = Exp2(fmaf(scores[j][n][2 * h + 1], scale, -subtracted));
        sums[n][0] += first;
        sums[n][1] += second;
        const Pair pair = FromFloats(T{}, first, second);
        weights[j][n][h] = *reinterpret_cast<const uint32_t*>(&pair);
      }
    }
    part.sum = (sums[0][0] + sums[0][1]) + (sums[1][0] + sums[1][1]);
    part.sum += __shfl_xor_sync(0xffffffffu, part.sum, 1);
    part.sum += __shfl_xor_sync(0xffffffffu, part.sum, 2);
    return part;
  }
};

}  // namespace spry::cuda
