// How kernels of many rows draw from the logits that they make (draw.cuh): every thread from those
// that it has to store, or a warpgroup that has nothing else to do, beside those that multiply.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cuda/draw.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/shared_barrier.cuh"
#include "device/cuda/warpgroup_mma.cuh"

namespace spry::cuda {

// The draws of a block's rows by the threads that have their logits; nothing unless y is f32.
template <typename Y, typename Shape>
struct BlockDraws {
  static constexpr bool kMayDraw = std::is_same_v<Y, float>;
  static constexpr int kRows = kMayDraw ? Shape::kTokens : 1;
  RowDraw* rows;             // [kRows], shared by the block
  unsigned long long* best;  // [kRows], shared by the block: found here or elsewhere

  __device__ static bool On(const DrawArgs& args) { return kMayDraw && args.best != nullptr; }
  // A barrier must follow.
  __device__ void Load(const DrawArgs& args, int32_t first_row) const {
    const int r = static_cast<int>(threadIdx.x);
    if (!On(args) || r >= kRows) return;
    rows[r] = RowDraw::Of(args, first_row + r);
    best[r] = 0;
  }
  // Logits of row r of the block.
  __device__ void See(int r, const float (&logits)[8], int32_t first_id) const {
    const RowDraw row = rows[r];
    if (!row.wanted()) return;
    const unsigned long long before = best[r];
    if (!DrawFilter(row, KnownScore(before)).AnyPasses(first_id, logits)) return;
    const unsigned long long found = BestOfEight(row, logits, first_id, before);
    if (found > before) atomicMax(&best[r], found);
  }
  // By a warpgroup, between the first tiles: early finds spare others most of their scores.
  __device__ void Exchange(const DrawArgs& args, int32_t first_row) const {
    const int r = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
    if (r >= kRows || !rows[r].wanted()) return;
    LeaveBest(args, first_row + r, best[r]);
    atomicMax(&best[r], __ldcg(reinterpret_cast<unsigned long long*>(&args.best[first_row + r])));
  }
  // After a barrier.
  __device__ void Leave(const DrawArgs& args, int32_t first_row) const {
    const int r = static_cast<int>(threadIdx.x);
    if (r < kRows && rows[r].wanted()) LeaveBest(args, first_row + r, best[r]);
  }
};
// Rounds after which a block tells the others what it has found, and hears. Later ones find little
// that is better.
inline constexpr int kRoundsTold = 2;

// Where each of some warpgroups leaves its tiles of logits, [token][output], for the warpgroup that
// draws from them: one place each, so that a place is filled and emptied in turn.
template <int kTokens, int kWarpgroups>
struct LogitTiles {
  static constexpr int kStride = kWarpgroupOutputs + 4;  // loads of 8 rows meet all banks
  static constexpr int kTileBytes = kTokens * kStride * 4;
  static constexpr int kBytes = kWarpgroups * kTileBytes;
  float* tiles;
  SharedBarrier* full;   // [kWarpgroups], of shared memory, as the next one
  SharedBarrier* empty;  // [kWarpgroups]

  // By one thread, before a barrier.
  __device__ void Init() const {
    for (int w = 0; w < kWarpgroups; ++w) {
      full[w].Init(kWarpgroupWarps);
      empty[w].Init(kWarpgroupWarps);
    }
  }
  __device__ float* Place(int warpgroup) const { return tiles + warpgroup * (kTileBytes / 4); }
  // Until the place is free for this round, and until it is full.
  __device__ void AwaitEmpty(int warpgroup, int round) const {
    empty[warpgroup].Await((round & 1) ^ 1);
  }
  __device__ void AwaitFull(int warpgroup, int round) const { full[warpgroup].Await(round & 1); }
  // By each warp: its part has been written, or read.
  __device__ void SetFull(int warpgroup) const { Arrive(full[warpgroup]); }
  __device__ void SetEmpty(int warpgroup) const { Arrive(empty[warpgroup]); }

 private:
  __device__ static void Arrive(SharedBarrier& barrier) {
    __syncwarp();
    if (threadIdx.x % kWarpThreads == 0) barrier.Arrive();
  }
};

// A thread of the warpgroup that draws: it sees neighbouring outputs of one row of every tile.
template <int kTokens>
struct RowDraws {
  static constexpr int kMine = kTokens * kWarpgroupOutputs / kWarpgroupThreads;
  const DrawArgs& args;
  RowDraw row;
  int32_t l;  // of the logits
  uint64_t best = 0;

  __device__ RowDraws(const DrawArgs& args, int32_t first_row)
      : args(args), row(RowDraw::Of(args, first_row + Token())), l(first_row + Token()) {}
  __device__ static int Thread() { return static_cast<int>(threadIdx.x) % kWarpgroupThreads; }
  __device__ static int Token() { return Thread() % kTokens; }

  // The tile that warpgroup `from` makes in a round, from first_output on; there are `outputs` in
  // all.
  template <typename Tiles>
  __device__ void Draw(const Tiles& tiles, int from, int round, int32_t first_output,
                       int32_t outputs) {
    // What other blocks have found is on its way while the tile is made.
    const uint64_t elsewhere = row.wanted() ? __ldcg(&args.best[l]) : 0;
    tiles.AwaitFull(from, round);
    const int column = Thread() / kTokens * kMine;
    const float* logits = tiles.Place(from) + Token() * Tiles::kStride + column;
    const int32_t first_id = first_output + column;
    best = max(best, elsewhere);
    const uint64_t before = best;
#pragma unroll 1
    for (int i = 0; i < kMine; i += 8) {
      if (!row.wanted() || first_id + i >= outputs) break;
      float eight[8];
      LoadFloats8(logits + i, eight);
      if (!DrawFilter(row, KnownScore(best)).AnyPasses(first_id + i, eight)) continue;
      best = BestOfEight(row, eight, first_id + i, best);
    }
    tiles.SetEmpty(from);
    if (best > before) LeaveBest(args, l, best);
  }
};

}  // namespace spry::cuda
