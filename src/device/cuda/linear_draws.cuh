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
    float ceilings[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      ceilings[e] = ScoreCeilingOf(row, first_id + e, logits[e]);
    }
    const unsigned long long found = BestOfEight(row, logits, ceilings, first_id, before);
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

// A thread of the warpgroup that draws: it sees neighbouring outputs of one row of every tile. What
// depends on no logit is done while the tile is made, and waits in shared memory; then a logit
// costs three operations, and few are scored.
template <int kTokens>
struct RowDraws {
  static constexpr int kMine = kTokens * kWarpgroupOutputs / kWarpgroupThreads;
  static constexpr int kEights = kMine / 8;
  static constexpr int kNoiseBytes = kEights * kWarpgroupThreads * static_cast<int>(sizeof(uint4));
  const DrawArgs& args;
  RowDraw row;
  int32_t l;  // of the logits
  uint64_t best = 0;
  uint64_t told = 0;       // to other blocks
  uint64_t elsewhere = 0;  // found by other blocks

  __device__ RowDraws(const DrawArgs& args, int32_t first_row)
      : args(args), row(RowDraw::Of(args, first_row + Token())), l(first_row + Token()) {}
  __device__ static int Thread() { return static_cast<int>(threadIdx.x) % kWarpgroupThreads; }
  __device__ static int Token() { return Thread() % kTokens; }
  __device__ static int Column() { return Thread() / kTokens * kMine; }

  // Ceilings of the noise of a tile's ids, as halves, which are not rounded below them.
  __device__ void Prepare(std::byte* noise, int32_t first_output) const {
    if (!(row.temperature > 0.0f)) return;
#pragma unroll 1
    for (int i = 0; i < kEights; ++i) {
      const int32_t id = first_output + Column() + i * 8;
      const auto ceiling = [&](int e) {
        return fmaf(NoiseCeiling(row.key, id + e), 0x1.004p0f, 0x1p-20f);
      };
      __half2 halves[4];
#pragma unroll
      for (int p = 0; p < 4; ++p) halves[p] = __floats2half2_rn(ceiling(2 * p), ceiling(2 * p + 1));
      *Eight(noise, i) = *reinterpret_cast<const uint4*>(halves);
    }
  }

  // The tile that warpgroup `from` makes in a round, from first_output on; there are `outputs` in
  // all.
  template <typename Tiles>
  __device__ void Draw(const Tiles& tiles, std::byte* noise, int from, int round,
                       int32_t first_output, int32_t outputs) {
    tiles.AwaitFull(from, round);
    const float* logits = tiles.Place(from) + Token() * Tiles::kStride + Column();
    const int32_t first_id = first_output + Column();
    best = max(best, elsewhere);
    float eight[8];
    float ceilings[8];
    const auto load = [&](int i) __attribute__((always_inline)) {
      LoadFloats8(logits + i * 8, eight);
      uint4 bits = make_uint4(0, 0, 0, 0);
      if (row.temperature > 0.0f) bits = *Eight(noise, i);
      const auto* halves = reinterpret_cast<const __half2*>(&bits);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const float2 pair = __half22float2(halves[p]);
        ceilings[2 * p] = ScoreCeiling(row, eight[2 * p], pair.x);
        ceilings[2 * p + 1] = ScoreCeiling(row, eight[2 * p + 1], pair.y);
      }
    };
    float tops[kEights];
    bool open[kEights];
#pragma unroll
    for (int i = 0; i < kEights; ++i) {
      open[i] = row.wanted() && first_id + i * 8 < outputs;
      if (!open[i]) continue;
      load(i);
      tops[i] = ceilings[0];
#pragma unroll
      for (int e = 1; e < 8; ++e) asm("max.NaN.f32 %0, %0, %1;" : "+f"(tops[i]) : "f"(ceilings[e]));
    }
    // The likeliest eight first: once its best is known most others are not looked at again.
#pragma unroll 1
    for (int turn = 0; turn < kEights; ++turn) {
      float top = KnownScore(best);
      int likeliest = -1;
#pragma unroll
      for (int i = 0; i < kEights; ++i) {
        if (!open[i] || tops[i] < top) continue;
        top = tops[i];
        likeliest = i;
      }
      if (likeliest < 0) break;
      load(likeliest);
      best = BestOfEight(row, eight, ceilings, first_id + likeliest * 8, best);
#pragma unroll
      for (int i = 0; i < kEights; ++i) open[i] &= i != likeliest;
    }
    tiles.SetEmpty(from);
    Tell();
  }

  // Between tiles: what other blocks have found is on its way while the next noise is made.
  __device__ void Ask() {
    if (row.wanted()) elsewhere = __ldcg(&args.best[l]);
  }

 private:
  __device__ void Tell() {
    if (best <= max(told, elsewhere)) return;
    told = best;
    LeaveBest(args, l, best);
  }
  // Threads' eights lie side by side, which meets all banks.
  __device__ static uint4* Eight(std::byte* noise, int i) {
    return reinterpret_cast<uint4*>(noise) + i * kWarpgroupThreads + Thread();
  }
};

}  // namespace spry::cuda
