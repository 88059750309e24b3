// A warp's weights on their way through shared memory: tile after tile of a run, then of the run a
// jump further on, and so on, kAhead tiles at a time. A lane reads only what it fetched itself, so
// nobody waits for anybody. Not in registers, since what waits there for memory would be spilled
// where registers are short, and a spill waits for what it spills.
#pragma once

#include <cstdint>

#include "device/cuda/linear_tile.cuh"

namespace spry::cuda {

inline constexpr int kTileBytes = kTileQuads * 16;

template <int kAhead>
class WeightRing {
 public:
  static constexpr int64_t kBytes = int64_t{kAhead} * kTileBytes;  // of shared memory, a warp

  // Which tiles: `num_runs` runs of `run_tiles` tiles; next_run: from the start of one to the next,
  // in 16-byte words.
  struct Course {
    const uint4* first = nullptr;
    int32_t num_runs = 0;
    int32_t run_tiles = 0;
    int64_t next_run = 0;
  };

  // `slots`: kBytes for this warp. Starts the first kAhead tiles.
  __device__ WeightRing(const Course& course, std::byte* slots)
      : from_(course.first + Lane()),
        slots_(reinterpret_cast<uint4*>(slots) + Lane()),
        runs_left_(course.run_tiles > 0 ? course.num_runs : 0),
        run_tiles_(course.run_tiles),
        left_in_run_(course.run_tiles),
        jump_(course.next_run - int64_t{course.run_tiles} * kTileQuads) {
    for (int i = 0; i < kAhead; ++i) Fetch();
  }

  // The next tile; its place is then free for Fetch.
  __device__ TileOfWeights Take() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 1) : "memory");
    const uint4* slot = slots_ + take_ * kTileQuads;
    take_ = take_ + 1 == kAhead ? 0 : take_ + 1;
    return {slot[0], slot[kWarpThreads]};
  }

  // The same of the next kCount tiles.
  template <int kCount>
  __device__ void Take(TileOfWeights (&tiles)[kCount]) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - kCount) : "memory");
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint4* slot = slots_ + take_ * kTileQuads;
      take_ = take_ + 1 == kAhead ? 0 : take_ + 1;
      tiles[i] = {slot[0], slot[kWarpThreads]};
    }
  }

  // To be called for each tile taken, once it has been used; past the end it fetches nothing.
  __device__ void Fetch() {
    if (runs_left_ > 0) {
      uint4* slot = slots_ + put_ * kTileQuads;
      put_ = put_ + 1 == kAhead ? 0 : put_ + 1;
      CopyAsync16(slot, from_, true);
      CopyAsync16(slot + kWarpThreads, from_ + kWarpThreads, true);
      from_ += kTileQuads;
      if (--left_in_run_ == 0) {
        left_in_run_ = run_tiles_;
        from_ += jump_;
        --runs_left_;
      }
    }
    asm volatile("cp.async.commit_group;");  // one group a call, so that groups count tiles
  }

 private:
  __device__ static int Lane() { return static_cast<int>(threadIdx.x) % kWarpThreads; }

  const uint4* from_;
  uint4* slots_;
  int32_t runs_left_;
  int32_t run_tiles_;
  int32_t left_in_run_;
  int64_t jump_;
  int32_t put_ = 0;
  int32_t take_ = 0;
};

}  // namespace spry::cuda
