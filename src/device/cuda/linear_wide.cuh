// linear for many outputs of few rows, as the last one of a decode step: each warp makes 16 outputs
// over all of K, and no warp waits for another once the rows lie in shared memory, so that the
// weights stream at the rate of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/draw.cuh"
#include "device/cuda/linear_input.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/weight_ring.cuh"

namespace spry::cuda {

inline constexpr int kMaxWideRows = 16;
inline constexpr int kMaxWideLogits = 32;  // rows, normed before the kernel from kMaxWideRows on
inline constexpr int64_t kWideRowBytes = 72 << 10;  // of rows in shared memory

// kNormChunks: of a row that is normed on the way in (normalize.cuh); 0: none.
template <int kTokenTiles_, int kNormChunks_, bool kLongRows_ = false>
struct WideShape {
  static constexpr int kTokenTiles = kTokenTiles_;
  static constexpr int kNormChunks = kNormChunks_;
  static constexpr int kRows = kTokenTiles * kMmaTokens;
  static constexpr bool kManyRows = kRows > kMaxWideRows;  // one block has them, for more warps
  static constexpr int kWarps = kManyRows ? 12 : 8;
  static constexpr int kThreads = kWarps * kWarpThreads;
  // Long rows leave room for one block in a multiprocessor: then each warp has more on its way.
  static constexpr bool kLongRows = kLongRows_;
  static constexpr int kAhead = kLongRows ? 16 : kManyRows ? 8 : 6;
  static constexpr int kMinBlocks = kLongRows || kManyRows ? 1 : 3;
  using Ring = WeightRing<kAhead>;
  static constexpr int64_t kRingBytes = kWarps * Ring::kBytes;
};

// Rows [0, num_rows) of x to shared memory, normed or not. A row that is not there stays as it is:
// its results are not stored.
template <typename Shape, typename T>
__device__ void FetchRows(const MmaLinearArgs& args, int32_t num_rows, T* rows) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  for (int r = warp; r < num_rows; r += Shape::kWarps) {
    const T* x = reinterpret_cast<const T*>(args.x.data) + r * args.x.stride;
    T* y = rows + r * SharedStride(args.depth);
    if constexpr (Shape::kNormChunks > 0) {
      NormalizeRow<Shape::kNormChunks>(args.norm, x, y, args.depth);
    } else {
      for (int32_t k = lane * 8; k < args.depth; k += kChunkElements) {
        CopyAsync16(y + k, x + k, true);
      }
    }
  }
  if constexpr (Shape::kNormChunks == 0) asm volatile("cp.async.wait_all;" ::: "memory");
}

// The draws of a warp. Lane (g, t) keeps the best of row 2t + g % 2 of token tile g / 2: of the 16
// logits of each row that come at a time it scores the likeliest to be the best, for all rows at
// once; after that most others need not be scored.
template <typename Shape>
struct WideDraws {
  static constexpr int kPairs = Shape::kTokenTiles * 2;  // (j, e): row 2t + e of token tile j
  static_assert(kPairs <= 8);
  const RowDraw* rows;         // [kRows], shared by the block
  unsigned long long* others;  // [kRows], the best of all others; shared by the warp, 0 at first
  uint64_t best = 0;

  __device__ WideDraws(const RowDraw* rows, unsigned long long* others)
      : rows(rows), others(others) {}
  __device__ static int RowOf(int pair) {
    return pair / 2 * kMmaTokens + static_cast<int>(threadIdx.x) % 4 * 2 + pair % 2;
  }
  // Of the lane that keeps row RowOf(pair).
  __device__ uint64_t BestOf(int pair) const {
    return __shfl_sync(0xffffffffu, best, pair * 4 + static_cast<int>(threadIdx.x) % 4);
  }
  // What need not be scored is below this.
  __device__ static float Floor(uint64_t best) { return fmaxf(PackedValue(best), -INFINITY); }

  __device__ void See(const float (&logits)[Shape::kTokenTiles][4], int32_t first_output) {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    bool passes = false;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const RowDraw row = rows[RowOf(p)];
      const DrawFilter filter(row, Floor(BestOf(p)));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        passes |=
            row.wanted() && filter.Passes(first_output + g + 8 * i, logits[p / 2][p % 2 + 2 * i]);
      }
    }
    if (!__any_sync(0xffffffffu, passes)) return;
    float ceilings[kPairs][2];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const RowDraw row = rows[RowOf(p)];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float logit = logits[p / 2][p % 2 + 2 * i];
        float& ceiling = ceilings[p][i];
        ceiling = ScoreCeilingOf(row, first_output + g + 8 * i, logit);
        if (!(logit < INFINITY)) ceiling = INFINITY;
      }
    }
    ScoreLikeliest(logits, ceilings, first_output);
    ScoreOthers(logits, ceilings, first_output);
  }

  __device__ void ScoreLikeliest(const float (&logits)[Shape::kTokenTiles][4],
                                 const float (&ceilings)[kPairs][2], int32_t first_output) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    const int g = lane / 4;
    int mine = 0;  // of 16
    float logit = 0.0f;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      // The last bits of a ceiling say whose it is: a guess need not be exact.
      const bool upper = ceilings[p][1] > ceilings[p][0];
      uint32_t key = (OrderedKey(upper ? ceilings[p][1] : ceilings[p][0]) & ~15u) |
                     static_cast<uint32_t>(g + (upper ? 8 : 0));
#pragma unroll
      for (int step = 4; step < kWarpThreads; step *= 2) {
        key = max(key, __shfl_xor_sync(0xffffffffu, key, step));
      }
      const int likeliest = static_cast<int>(key & 15);
      const float half = likeliest < 8 ? logits[p / 2][p % 2] : logits[p / 2][p % 2 + 2];
      const float found = __shfl_sync(0xffffffffu, half, likeliest % 8 * 4 + lane % 4);
      if (p == g) mine = likeliest, logit = found;
    }
    if (g >= kPairs || !rows[RowOf(g)].wanted()) return;
    best = max(best, PackedDraw(rows[RowOf(g)], first_output + mine, logit));
  }

  __device__ void ScoreOthers(const float (&logits)[Shape::kTokenTiles][4],
                              const float (&ceilings)[kPairs][2], int32_t first_output) const {
    const int32_t id = first_output + static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    uint32_t wanted = 0;  // bits: pair * 2 + half
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const uint64_t known = BestOf(p);
      if (!rows[RowOf(p)].wanted()) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (ceilings[p][i] >= Floor(known) && id + 8 * i != PackedId(known)) {
          wanted |= 1u << (p * 2 + i);
        }
      }
    }
#pragma unroll 1
    while (wanted != 0) {
      const int at = __ffs(static_cast<int>(wanted)) - 1;
      wanted &= wanted - 1;
      float logit = 0.0f;
#pragma unroll
      for (int i = 0; i < kPairs * 2; ++i) {
        if (i == at) logit = logits[i / 4][i / 2 % 2 + i % 2 * 2];
      }
      const int row = RowOf(at / 2);
      atomicMax(&others[row], PackedDraw(rows[row], id + at % 2 * 8, logit));
    }
  }

  // The warp's best are then in `others`.
  __device__ void End() const {
    const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
    __syncwarp();
    if (g < kPairs) others[RowOf(g)] = max(uint64_t{others[RowOf(g)]}, best);
  }
};

template <typename T, typename Y, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kMinBlocks)
    WideKernel(const __grid_constant__ MmaLinearArgs args, int32_t num_rows) {
  constexpr int kTokenTiles = Shape::kTokenTiles;
  constexpr bool kMayDraw = std::is_same_v<Y, float>;
  LetNextStart();
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int tiles = args.depth / kTileDepth;
  const int per_segment = SegmentTiles(args.depth);
  const int outputs = args.outputs / kMmaOutputs;
  const int all_warps = static_cast<int>(gridDim.x) * Shape::kWarps;
  const int first = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  extern __shared__ __align__(128) std::byte shared[];
  typename Shape::Ring ring(
      {.first = args.weight + int64_t{first} * tiles * kTileQuads,
       .num_runs = first < outputs ? (outputs - first + all_warps - 1) / all_warps : 0,
       .run_tiles = tiles,
       .next_run = int64_t{all_warps} * tiles * kTileQuads},
      shared + warp * Shape::Ring::kBytes);
  T* rows = reinterpret_cast<T*>(shared + Shape::kRingBytes);
  __shared__ RowDraw drawn_rows[kMayDraw ? Shape::kRows : 1];
  __shared__ unsigned long long best_draws[kMayDraw ? Shape::kWarps : 1][Shape::kRows];
  WideDraws<Shape> draws(drawn_rows, best_draws[kMayDraw ? warp : 0]);
  const bool drawing = kMayDraw && args.draw.best != nullptr;
  const int r = Shape::kThreads - 1 - static_cast<int>(threadIdx.x);
  if (drawing && r < Shape::kRows) drawn_rows[r] = RowDraw::Of(args.draw, r);
  if (drawing && lane < Shape::kRows) best_draws[warp][lane] = 0;
  AwaitPrevious();
  FetchRows<Shape>(args, num_rows, rows);
  __syncthreads();

  const T* b = rows + lane / 4 * SharedStride(args.depth) + lane % 4 * 8;
  for (int output = first; output < outputs; output += all_warps) {
    float totals[kTokenTiles][4] = {};
    float sums[kTokenTiles][4] = {};
    bool first_segment = true;
    int left = per_segment;  // tiles of this segment
    for (int i = 0; i < tiles; ++i) {
      const TileOfWeights a = ring.Take();
#pragma unroll
      for (int j = 0; j < kTokenTiles; ++j) {
        AddTile<T>(sums[j], a,
                   LoadB(b + j * kMmaTokens * SharedStride(args.depth) + i * kTileDepth));
      }
      ring.Fetch();
      if (--left != 0 && i + 1 != tiles) continue;
      left = per_segment;
      EndSegment(totals, sums, first_segment);
      first_segment = false;
    }
    StoreTotals<Y>(args, totals, /*first_row=*/0, num_rows, output * kMmaOutputs);
    if constexpr (kMayDraw) {
      if (drawing) draws.See(totals, output * kMmaOutputs);
    }
  }
  if constexpr (kMayDraw) {
    if (!drawing) return;
    draws.End();
    __syncthreads();
    if (r >= Shape::kRows || !drawn_rows[r].wanted()) return;
    uint64_t best = best_draws[0][r];
#pragma unroll
    for (int w = 1; w < Shape::kWarps; ++w) best = max(best, uint64_t{best_draws[w][r]});
    LeaveBest(args.draw, r, best);
  }
}

// Enough outputs for every warp of the card, and rows that fit.
template <typename Y>
bool IsWide(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  const int32_t padded = CeilDiv(rows, kMmaTokens) * kMmaTokens;
  return rows <= (std::is_same_v<Y, float> ? kMaxWideLogits : kMaxWideRows) &&
         args.outputs / kMmaOutputs >= context.processors * kLinearWarps &&
         int64_t{padded} * SharedStride(args.depth) * 2 <= kWideRowBytes;
}

template <typename T, typename Y, typename Shape>
void LaunchWideShape(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  constexpr auto kKernel = WideKernel<T, Y, Shape>;
  // Cheap, and remembered by the driver; part of recording, never of a replayed step.
  (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(Shape::kRingBytes + kWideRowBytes));
  const int64_t row_bytes = int64_t{Shape::kRows} * SharedStride(args.depth) * sizeof(T);
  LaunchOverlapped(context,
                   {.blocks = dim3(std::min(CeilDiv(args.outputs / kMmaOutputs, Shape::kWarps),
                                            context.processors * Shape::kMinBlocks)),
                    .threads = Shape::kThreads,
                    .shared_bytes = static_cast<size_t>(Shape::kRingBytes + row_bytes)},
                   kKernel, args, rows);
}

template <typename T, typename Y, int kTokenTiles>
void LaunchWideOf(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (args.norm.kind != NormKind::kNone) {
    return LaunchWideShape<T, Y, WideShape<kTokenTiles, kShortRowChunks>>(args, rows, context);
  }
  if (IsShortRow(args.depth)) {
    return LaunchWideShape<T, Y, WideShape<kTokenTiles, 0>>(args, rows, context);
  }
  LaunchWideShape<T, Y, WideShape<kTokenTiles, 0, /*kLongRows=*/true>>(args, rows, context);
}

template <typename T, typename Y>
void LaunchWide(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (rows <= kMmaTokens) return LaunchWideOf<T, Y, 1>(args, rows, context);
  if constexpr (std::is_same_v<Y, float>) {
    if (rows > kMaxWideRows) return LaunchWideShape<T, Y, WideShape<4, 0>>(args, rows, context);
  }
  LaunchWideOf<T, Y, 2>(args, rows, context);
}

}  // namespace spry::cuda
