// A unit of attention: up to 8 query rows that share a KV head, of one token or of several of one
// request, so that K and V are read once for them. Its warps share the strands of a segment; how
// many warps there are changes nothing.
#pragma once

#include <algorithm>

#include "device/cuda/attention_strand.cuh"
#include "device/cuda/rope.cuh"

namespace spry::cuda {

// How a kernel shares out units: kWarps warps each. A block has at least 4 warps, unless the space
// in which it merges several rows is what limits how many run at once.
template <int kDim_, int kRows_, int kWarps_>
struct UnitShape : Units<kWarps_, kRows_ == 1 ? std::max(kWarps_, 4) : kWarps_> {
  static constexpr int kDim = kDim_;
  static constexpr int kRows = kRows_;  // at most
  // Warps of a multiprocessor: more leave registers for less than two parts of a strand.
  static constexpr int kPerProcessor = kDim == 128 ? 8 : kWarps_ == 1 ? 12 : 16;
  static constexpr int kMinBlocks = kPerProcessor / UnitShape::kBlockWarps;
};

// The strands of one warp: those of a segment in ascending order, then of the unit's next segment.
// A strand is named by the first position of its first tile.
template <typename Shape>
struct StrandWalk {
  uint32_t end;
  uint32_t segment_step;  // positions

  __device__ static uint32_t StrandOf(uint32_t begin) { return begin / kTileKeys % kStrands; }
  __device__ static uint32_t SegmentOf(uint32_t begin) { return begin / kKvSegment; }
  __device__ static uint32_t First(uint32_t segment_begin) {
    return segment_begin + Shape::Warp() * kTileKeys;
  }
  __device__ uint32_t Next(uint32_t begin) const {
    const uint32_t segment_begin = begin & ~uint32_t{kKvSegment - 1};
    if constexpr (Shape::kWarps < kStrands) {
      const uint32_t strand = StrandOf(begin) + Shape::kWarps;
      const uint32_t next = segment_begin + strand * kTileKeys;
      if (strand < kStrands && next < end) return next;
    }
    return First(segment_begin + segment_step);
  }
  __device__ int NumTiles(uint32_t begin) const {
    return static_cast<int>(min((end - begin + kStrandStep - 1) / kStrandStep, kStrandTiles));
  }
};

// A strand before it is joined with others, and after.
union StrandPart {
  SoftmaxPart softmax;
  PartFactors factors;  // what it counts beside those before
};

// Where the strands of a unit's segment become one. Four blocks of two warps and heads of 128 fit
// beside their queries in 164 KiB, which leaves the first cache enough for what is on its way.
template <int kDim, int kRows>
struct StrandSpace {
  static constexpr int kJoinThreads = std::max(kRows * kStrands, kWarpThreads);
  __align__(16) float output[kStrands][kRows][kDim];
  __align__(16) float total[kRows][kDim];  // of the segments before
  StrandPart parts[kRows][kStrands];
  SoftmaxPart joined[kRows];   // the segment
  SoftmaxPart running[kRows];  // it and those before
  PartFactors merge[kRows];

  // Outputs lie so that what a warp stores at once meets all banks: element `ElementOf(p)` at p,
  // and there at Turned(row, p).
  __device__ static int ElementOf(int p) { return p / 64 * 64 + p % 8 * 8 + p % 64 / 8; }

  __device__ static int Turned(int row, int p) { return p ^ (row / 2 % 4 * 8); }

  template <typename T>
  __device__ void Put(uint32_t strand, int rows, const StrandState<T, kDim, kRows>& state) {
    const int g = LaneRows<T, kDim>::Group();
    const int t = LaneRows<T, kDim>::Quad();
#pragma unroll
    for (int i = 0; i < StrandState<T, kDim, kRows>::kMine; ++i) {
      const int row = 2 * t + i;
      if (row >= rows) continue;
      if (g == 0) parts[row][strand].softmax = state.softmax[i];
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int place = n / 4 * 64 + (n % 4 * 2 + e) * 8 + g;
          output[strand][row][Turned(row, place)] = state.output[n][2 * e + i];
        }
      }
    }
  }

  // The segment's state of each row, what each of its `used` strands counts beside those before,
  // and what the segment counts beside those before. By the first threads of a unit, whole warps,
  // between barriers. As Append, all strands at once.
  __device__ void Join(int thread, int used, bool first) {
    if (thread >= kJoinThreads) return;
    const int row = thread / kStrands % kRows;
    const int strand = thread % kStrands;
    SoftmaxPart part = SoftmaxPart::Unseen();
    if (strand < used) part = parts[row][strand].softmax;
    const float own = part.max;
    float largest = own;  // of this strand and those before
#pragma unroll
    for (int step = 1; step < kStrands; step *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, largest, step, kStrands);
      if (strand >= step) largest = fmaxf(largest, other);
    }
    float before = __shfl_up_sync(0xffffffffu, largest, 1, kStrands);
    if (strand == 0) before = -INFINITY;
    const PartFactors own_factors = {Exp2(before - Finite(largest)), Exp2(own - Finite(largest))};
    const float own_sum = part.sum * own_factors.second;
    SoftmaxPart state{__shfl_sync(0xffffffffu, largest, kStrands - 1, kStrands), 0.0f};
#pragma unroll
    for (int s = 0; s < kStrands; ++s) {
      state.sum = fmaf(state.sum, __shfl_sync(0xffffffffu, own_factors.first, s, kStrands),
                       __shfl_sync(0xffffffffu, own_sum, s, kStrands));
    }
    if (thread >= kRows * kStrands) return;
    parts[row][strand].factors = own_factors;
    if (strand != 0) return;
    joined[row] = state;
    if (first) {
      running[row] = state;
    } else {
      SoftmaxPart whole = running[row];
      merge[row] = Append(whole, state);
      running[row] = whole;
    }
  }

  // Places [p, p + 4) of a row's output in the segment.
  __device__ float4 Output(int row, int p, int used) const {
    float4 merged = {};
#pragma unroll
    for (int s = 0; s < kStrands; ++s) {
      if (s >= used) break;
      const auto next = *reinterpret_cast<const float4*>(&output[s][row][Turned(row, p)]);
      merged = Merged(parts[row][s].factors, merged, next);
    }
    return merged;
  }
  // The same of all segments so far.
  __device__ float4 Total(int row, int p, const float4& next) const {
    return Merged(merge[row], *reinterpret_cast<const float4*>(&total[row][p]), next);
  }

 private:
  __device__ static float4 Merged(const PartFactors& factors, const float4& first,
                                  const float4& second) {
    return {factors.Merged(first.x, second.x), factors.Merged(first.y, second.y),
            factors.Merged(first.z, second.z), factors.Merged(first.w, second.w)};
  }
};

// The query rows of a unit and its own key, where they have been fetched to.
template <typename T, int kDim, int kRows>
struct UnitHeads {
  static constexpr int kRun = 8;
  __align__(16) T queries[kRows][kDim];
  __align__(16) T key[kDim];  // where it is rotated here

  // By all threads of the unit, as the next one; a barrier must follow. row_of(row): where it is.
  template <typename Shape, typename RowOf>
  __device__ void Fetch(int rows, const RowOf& row_of) {
    constexpr int kRuns = kDim / kRun;
    for (int i = Shape::Thread(); i < rows * kRuns; i += Shape::kThreads) {
      const int at = i % kRuns * kRun;
      *reinterpret_cast<uint4*>(queries[i / kRuns] + at) =
          *reinterpret_cast<const uint4*>(row_of(i / kRuns) + at);
    }
  }
  // Queries, and the key, rotated. `angles`: the position's row of the table.
  template <typename Shape>
  __device__ void FetchRotated(const float* angles, int rows, const T* from_queries,
                               const T* from_key) {
    constexpr int kRuns = kDim / 2 / kRun;  // of half a head
    for (int i = Shape::Thread(); i < (rows + 1) * kRuns; i += Shape::kThreads) {
      const int row = i / kRuns;
      const int first = i % kRuns * kRun;
      const T* from = (row < rows ? from_queries + row * kDim : from_key) + first;
      auto firsts = *reinterpret_cast<const Run<T, kRun>*>(from);
      auto seconds = *reinterpret_cast<const Run<T, kRun>*>(from + kDim / 2);
      Rotate(firsts, seconds, *reinterpret_cast<const Run<float, kRun>*>(angles + first),
             *reinterpret_cast<const Run<float, kRun>*>(angles + kDim / 2 + first));
      T* to = (row < rows ? queries[row] : key) + first;
      *reinterpret_cast<Run<T, kRun>*>(to) = firsts;
      *reinterpret_cast<Run<T, kRun>*>(to + kDim / 2) = seconds;
    }
  }
};

// A lane's row of queries, in shared memory and read again for every tile: registers hold what is
// on its way instead.
template <typename T, int kDim>
struct Query {
  uint32_t chunks;  // this lane's first

  __device__ explicit Query(const T* row)
      : chunks(
            static_cast<uint32_t>(__cvta_generic_to_shared(row + LaneRows<T, kDim>::Quad() * 8))) {}

  __device__ uint4 Chunk(int c) const {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(chunks + c * 64));
    return value;
  }
};

// The last key and value: where the projection left them or, if another launch has written them, in
// the cache.
template <typename T>
struct OwnKv {
  const T* k;
  const T* v;

  // By one warp.
  template <int kDim>
  __device__ void Write(T* key, T* value) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
    if (lane >= kDim / 8) return;
    *reinterpret_cast<uint4*>(key + lane * 8) = *reinterpret_cast<const uint4*>(k + lane * 8);
    *reinterpret_cast<uint4*>(value + lane * 8) = *reinterpret_cast<const uint4*>(v + lane * 8);
  }
};

// The rows of a unit and its segments: `first_segment` and every `segment_step`-th after it.
template <typename T, typename Shape>
struct UnitWork {
  static constexpr int kMine = Shape::kRows == 1 ? 1 : 2;
  Query<T, Shape::kDim> query;
  const OwnKv<T>* own;  // in shared memory: seldom used
  int num_rows;
  uint32_t ends[kMine];  // of what this lane's rows see
  uint32_t shortest;     // end of what any row sees
  float scale;           // of scores, to exponents of 2
  int32_t first_segment;
  int32_t segment_step;
};

// A warp on its way through its strands. A strand's parts are the keys of its tiles, then their
// values; two parts are on their way at any time, the next strand's among them, and the place of
// one is filled again as soon as it is used.
template <typename T, typename Shape>
struct WarpStrands {
  static constexpr int kDim = Shape::kDim;
  using Parts = TileParts<T, kDim>;
  LaneRows<T, kDim> rows;
  CacheSteps steps;
  StrandWalk<Shape> walk;
  uint32_t strand = 0;
  Parts parts[2];
  TilePlace places[kStrandTiles];  // of the strand's tiles

  __device__ void Start(uint32_t segment) {
    strand = walk.First(segment * kKvSegment);
    if (strand >= walk.end) return;
    const int tiles = walk.NumTiles(strand);
#pragma unroll
    for (int j = 0; j < kStrandTiles; ++j) {
      if (j < tiles) Find(places[j], strand, j);
    }
    parts[0].Fetch(rows, places[0], /*values=*/false);
    if (tiles > 1) {
      parts[1].Fetch(rows, places[1], /*values=*/false);
    } else {
      parts[1].Fetch(rows, places[0], /*values=*/true);
    }
  }

  // The strands of one segment.
  __device__ void AddSegment(uint32_t segment, const UnitWork<T, Shape>& work,
                             StrandSpace<kDim, Shape::kRows>& space) {
#pragma unroll 1
    while (strand < walk.end && walk.SegmentOf(strand) == segment) {
      switch (walk.NumTiles(strand)) {
        case 1: AddStrand<1>(work, space); break;
        case 2: AddStrand<2>(work, space); break;
        case 3: AddStrand<3>(work, space); break;
        default: AddStrand<kStrandTiles>(work, space);
      }
    }
  }

 private:
  __device__ void Find(TilePlace& place, uint32_t of, int j) const {
    place.template Find<kDim>(rows.block_table, steps, of + j * kStrandStep, walk.end - 1);
  }

  // The strand after this one.
  struct Following {
    uint32_t strand;
    int tiles;            // 0: there is none
    TilePlace places[2];  // of its first two parts
  };
  __device__ Following FindFollowing() const {
    Following next{.strand = walk.Next(strand)};
    if (next.strand >= walk.end) return next;
    next.tiles = walk.NumTiles(next.strand);
    Find(next.places[0], next.strand, 0);
    next.places[1] = next.places[0];
    if (next.tiles > 1) Find(next.places[1], next.strand, 1);
    return next;
  }

  // Starts [h][c] of the part that comes two after part i, in its place.
  template <int kTiles>
  __device__ void Refill(int i, const Following& next, int h, int c) {
    Parts& place = parts[i % 2];
    const int after = i + 2;
    if (after < kTiles) {
      place.Fetch(rows, places[after], /*values=*/false, h, c);
    } else if (after < 2 * kTiles) {
      place.Fetch(rows, places[after - kTiles], /*values=*/true, h, c);
    } else if (next.tiles > 0) {
      const bool values = after > 2 * kTiles && next.tiles == 1;
      place.Fetch(rows, next.places[after - 2 * kTiles], values, h, c);
    }
  }

  template <int kTiles>
  __device__ void AddStrand(const UnitWork<T, Shape>& work,
                            StrandSpace<kDim, Shape::kRows>& space) {
    const Following next = FindFollowing();
    // The last position, counted from the first of the last tile.
    const auto last = static_cast<int32_t>(walk.end - 1 - strand) - (kTiles - 1) * kStrandStep;
    StrandState<T, kDim, Shape::kRows> state;
    float scores[kTiles][4] = {};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      Parts& keys = parts[j % 2];
      if (j == kTiles - 1 && last < kTileKeys) keys.PutLastKey(last, work.own->k);
#pragma unroll
      for (int c = 0; c < Parts::kChunks; ++c) {
        keys.Score(work.query.Chunk(c), c, scores[j]);
#pragma unroll
        for (int h = 0; h < 2; ++h) Refill<kTiles>(j, next, h, c);
      }
    }
    state.Weigh(scores, strand, work.ends, work.shortest, work.scale);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      Parts& values = parts[(kTiles + j) % 2];
      if (j == kTiles - 1 && last < kTileKeys) values.PutLastValue(last, work.own->v);
      if (j == (kTiles > 2 ? kTiles - 2 : 0)) {  // the places of this strand's last tiles are free
#pragma unroll
        for (int k = 2; k < kStrandTiles; ++k) {
          if (k < next.tiles) Find(places[k], next.strand, k);
        }
      }
      constexpr int kWidth = kDim / 64;  // chunks of a value
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        values.AddOutputs(c, state.weights[j], &state.output[c * 4]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
          for (int i = 0; i < 2; ++i) Refill<kTiles>(kTiles + j, next, h, i * kWidth + c);
        }
      }
    }
    space.Put(walk.StrandOf(strand), work.num_rows, state);
    strand = next.strand;
#pragma unroll
    for (int i = 0; i < 2; ++i) places[i] = next.places[i];
  }
};

// Computes a unit. Where its segments are `spread` over blocks, store_part(segment, row, place,
// state, outputs) is given each of them, else store(row, element, outputs) the rows: four elements,
// 8 apart, of one run of 32.
template <typename T, typename Shape, typename StorePart, typename Store>
__device__ void RunUnit(WarpStrands<T, Shape>& strands, const UnitWork<T, Shape>& work, bool spread,
                        StrandSpace<Shape::kDim, Shape::kRows>& space, const StorePart& store_part,
                        const Store& store) {
  constexpr int kRuns = Shape::kDim / 4;
  const auto end = static_cast<int32_t>(strands.walk.end);
  for (int32_t segment = work.first_segment; segment * kKvSegment < end;
       segment += work.segment_step) {
    strands.AddSegment(segment, work, space);
    Shape::Sync();
    const int used = min(kStrands, (end - segment * kKvSegment + kTileKeys - 1) / kTileKeys);
    const bool is_first = segment == work.first_segment;
    const bool is_last = (segment + work.segment_step) * kKvSegment >= end;
    space.Join(Shape::Thread(), used, is_first);
    Shape::Sync();
#pragma unroll 1
    for (int i = Shape::Thread(); i < work.num_rows * kRuns; i += Shape::kThreads) {
      const int row = i / kRuns;
      const int place = i % kRuns * 4;
      float4 output = space.Output(row, place, used);
      if (spread) {
        store_part(segment, row, place, space.joined[row], output);
        continue;
      }
      if (!is_first) output = space.Total(row, place, output);
      if (!is_last) {
        *reinterpret_cast<float4*>(&space.total[row][place]) = output;
        continue;
      }
      const float share = 1.0f / space.running[row].sum;
      store(row, space.ElementOf(place),
            make_float4(output.x * share, output.y * share, output.z * share, output.w * share));
    }
    if (!is_last) Shape::Sync();  // the space is used again
  }
}

}  // namespace spry::cuda
