// linear for up to a few hundred rows: a block makes 16 outputs of up to 64 rows at a time, each
// warp one segment of K. What such a product costs is the latency of its instructions and of
// memory, so instances are made for the depths that matter: a warp's whole segment of weights is in
// flight before the kernel before this one has ended, and addresses are a base and constants.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "device/cuda/draw.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/overlap.cuh"

namespace spry::cuda {

inline constexpr int64_t kFusedNormBytes = 112 << 10;
// Blocks per multiprocessor of a kernel that has more tiles than that; each then makes several.
inline constexpr int kBlocksPerProcessor = 2;

// kTiles: of a segment that are in flight. kWhole: they are the segment. kNormChunks: of a row that
// is normed on the way in (normalize.cuh); 0: none.
template <int kTokenTiles_, int kOutputTiles_, int kTiles_, bool kWhole_, int kNormChunks_ = 0>
struct FewRowsShape {
  static constexpr int kTokenTiles = kTokenTiles_;
  static constexpr int kOutputTiles = kOutputTiles_;
  static constexpr int kTiles = kTiles_;
  static constexpr bool kWhole = kWhole_;
  static constexpr int kNormChunks = kNormChunks_;
  static constexpr int kRows = kTokenTiles * kMmaTokens;
  static constexpr int kOutputs = kOutputTiles * kMmaOutputs;
  // Item m of a thread is output thread % kOutputs of token m * kTokensPerItem + thread / kOutputs.
  static constexpr int kTokensPerItem = kLinearThreads / kOutputs;
  static constexpr int kItems = (kRows + kTokensPerItem - 1) / kTokensPerItem;
  // Norm weights wait for the rows: in registers where a warp norms one short row.
  static constexpr bool kNormAhead = kTokenTiles == 1 && kNormChunks > 0;
  static constexpr bool kNormShared = kNormChunks > 0 && !kNormAhead;
  static constexpr int kNormTogether = kTokenTiles > 1 ? 2 : 1;
  static constexpr int kBuffers = kTokenTiles * kOutputTiles <= 4 ? 2 : 1;  // of partial sums
  static constexpr int kMinBlocks = kTiles * kOutputTiles > 6 ? 1 : 2;
  // For every tile of outputs, where that leaves registers for the blocks of the next kernel.
  static constexpr bool kKeepsB = kWhole && kTokenTiles <= 2 && kTokenTiles * kTiles <= 12;
  // for every tile of outputs
};

struct FewRowsCounts {
  int32_t rows = 0;         // of the bucket
  int32_t outputs = 0;      // tiles, of kOutputs
  int32_t depth = 0;        // tiles of 32
  int32_t per_segment = 0;  // of depth
};

// Partial sums of a block: [segment][token][output]. Stores of a warp meet all banks.
template <typename Shape>
struct PartialSums {
  static constexpr int kStride = Shape::kOutputs + 4;
  float values[kSegments][Shape::kRows][kStride];

  __device__ void Put(int segment, int g, int t,
                      const float (&sums)[Shape::kOutputTiles][Shape::kTokenTiles][4]) {
#pragma unroll
    for (int o = 0; o < Shape::kOutputTiles; ++o) {
#pragma unroll
      for (int j = 0; j < Shape::kTokenTiles; ++j) {
        float(*row)[kStride] = &values[segment][j * kMmaTokens + 2 * t];
        const int at = o * kMmaOutputs + g;
        row[0][at] = sums[o][j][0];
        row[1][at] = sums[o][j][1];
        row[0][at + 8] = sums[o][j][2];
        row[1][at + 8] = sums[o][j][3];
      }
    }
  }
  __device__ float Total(int used, int token, int output) const {
    float parts[kSegments];
#pragma unroll
    for (int s = 0; s < kSegments; ++s) parts[s] = values[s][token][output];
    float sum = parts[0];
#pragma unroll
    for (int s = 1; s < kSegments; ++s) {
      if (s < used) sum += parts[s];
    }
    return sum;
  }
};

// Where a block's rows are normed: the norm's weights and biases, f32, then the rows.
template <typename Shape>
__host__ __device__ constexpr int64_t NormSharedBytes(int32_t depth) {
  return (Shape::kNormShared ? int64_t{depth} * 2 * sizeof(float) : 0) +
         (Shape::kNormChunks > 0 ? int64_t{Shape::kRows} * SharedStride(depth) * 2 : 0);
}

// Before the kernel before this one has ended.
template <typename Shape>
__device__ void LoadScales(const MmaLinearArgs& args, NormScale* ahead, float* shared) {
  if constexpr (Shape::kNormAhead) {
#pragma unroll
    for (int c = 0; c < Shape::kNormChunks; ++c) {
      const int32_t first =
          static_cast<int32_t>(threadIdx.x) % kWarpThreads * 8 + c * kChunkElements;
      if (first < args.depth) ahead[c].Load(args.norm, first);
    }
  }
  if constexpr (Shape::kNormShared) {
    const bool biased = args.norm.kind == NormKind::kLayer;  // else zeros
    for (int32_t k = static_cast<int32_t>(threadIdx.x) * 4; k < args.depth;
         k += kLinearThreads * 4) {
      CopyAsync16(shared + k, args.norm.weight + k, true);
      CopyAsync16(shared + args.depth + k, biased ? args.norm.bias + k : args.norm.weight, biased);
    }
    asm volatile("cp.async.commit_group;");
  }
}

// Column `column` of this lane's rows, normed or not.
template <typename Shape, typename T>
__device__ void FindRows(const MmaLinearArgs& args, const T* normed, int32_t first_row,
                         int32_t num_rows, int32_t column, const T* (&rows)[Shape::kTokenTiles]) {
  const int g = static_cast<int>(threadIdx.x) % kWarpThreads / 4;
#pragma unroll
  for (int j = 0; j < Shape::kTokenTiles; ++j) {
    const int r = j * kMmaTokens + g;
    if constexpr (Shape::kNormChunks > 0) {
      rows[j] = normed + r * SharedStride(args.depth) + column;
    } else {
      const int32_t row = min(first_row + r, num_rows - 1);
      rows[j] = reinterpret_cast<const T*>(args.x.data) + row * args.x.stride + column;
    }
  }
}

template <int kTiles, int kTokenTiles, typename T>
__device__ void KeepB(const T* const (&rows)[kTokenTiles], uint4 (&kept)[kTiles][kTokenTiles]) {
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) kept[i][j] = LoadB(rows[j] + i * kTileDepth);
  }
}

// Rows beyond the last are the last again. A warp's rows are normed a few at once, for the latency
// of each, while the next few are on their way.
template <typename Shape, typename T>
__device__ void NormRows(const MmaLinearArgs& args, const NormScale* ahead, const float* shared,
                         int32_t first_row, int32_t num_rows, T* normed) {
  constexpr int kChunks = Shape::kNormChunks;
  constexpr int kTogether = Shape::kNormTogether;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int32_t stride = SharedStride(args.depth);
  const auto load = [&](int i, RowChunks<kChunks>(&rows)[kTogether]) {
#pragma unroll
    for (int m = 0; m < kTogether; ++m) {
      const int32_t r = min(first_row + (i + m) * kLinearWarps + warp, num_rows - 1);
      rows[m].Load(reinterpret_cast<const T*>(args.x.data) + r * args.x.stride, args.depth);
    }
  };
  const auto scale_of = [&](int c, int32_t first) {
    NormScale scale;
    if constexpr (Shape::kNormAhead) {
      scale = ahead[c];
    } else {
      LoadFloats8(shared + first, scale.weight);
      LoadFloats8(shared + args.depth + first, scale.bias);
    }
    return scale;
  };
  if (Shape::kNormAhead && first_row + warp >= num_rows) return;
  RowChunks<kChunks> next[kTogether];
  load(0, next);
#pragma unroll
  for (int i = 0; i < Shape::kTokenTiles; i += kTogether) {
    RowChunks<kChunks> rows[kTogether];
#pragma unroll
    for (int m = 0; m < kTogether; ++m) rows[m] = next[m];
    if (i + kTogether < Shape::kTokenTiles) load(i + kTogether, next);
    T* y = normed + (i * kLinearWarps + warp) * stride;
    const auto await_scales = [&] {
      if (!Shape::kNormShared || i > 0) return;
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
    };
    const auto put = [y, stride](int m, int32_t first, const uint4& bits) {
      *reinterpret_cast<uint4*>(y + m * kLinearWarps * stride + first) = bits;
    };
    NormalizeRows<T>(args.norm, rows, args.depth, scale_of, await_scales, put);
  }
}

template <typename Y, typename Shape>
__device__ void LoadResiduals(const MmaLinearArgs& args, int32_t first_row, int32_t num_rows,
                              int32_t n, float (&residual)[Shape::kItems]) {
#pragma unroll
  for (int m = 0; m < Shape::kItems; ++m) {
    const int token = Shape::kTokensPerItem * m + static_cast<int>(threadIdx.x) / Shape::kOutputs;
    residual[m] = LoadResidual<Y>(args, min(first_row + token, num_rows - 1), n);
  }
}

// Where the block's outputs of one tile go.
struct OutputTile {
  int32_t first_row = 0;
  int32_t num_rows = 0;
  int32_t first_output = 0;
};

// Tiles after which a block tells the others what it has found.
inline constexpr int kTilesTold = 2;

// Logits are scored as they are stored, if y is f32 and somebody wants it.
template <typename Y, typename Shape>
struct Draws {
  static constexpr bool kMayDraw = std::is_same_v<Y, float>;
  static constexpr int kRows = kMayDraw ? Shape::kRows : 1;
  static constexpr int kItems = kMayDraw ? Shape::kItems : 0;
  static constexpr int kDrawLanes = Shape::kOutputs < kWarpThreads ? Shape::kOutputs : kWarpThreads;

  const DrawArgs& args;
  int32_t first_row;
  RowDraw* rows;  // [kRows], shared by the block
  BestDraw best[kMayDraw ? kItems : 1];

  __device__ Draws(const DrawArgs& args, int32_t first_row, RowDraw* rows)
      : args(args), first_row(first_row), rows(rows) {}
  __device__ bool on() const { return kMayDraw && args.best != nullptr; }
  __device__ static int Token(int item) {
    return item * Shape::kTokensPerItem + static_cast<int>(threadIdx.x) / Shape::kOutputs;
  }
  // A barrier must follow.
  __device__ void Load() {
    const int r = static_cast<int>(threadIdx.x);
    if (on() && r < kRows) rows[r] = RowDraw::Of(args, first_row + r);
  }
  __device__ void See(int item, float logit, int32_t id) {
    if constexpr (kMayDraw) {
      if (!on()) return;
      const RowDraw row = rows[Token(item)];
      if (row.wanted()) best[item].See(row, logit, id);
    }
  }
  __device__ void Leave() const {
#pragma unroll
    for (int m = 0; m < kItems; ++m) {
      const bool inside = Token(m) < kRows;  // half of the block has no row of 8
      LeaveBest<kDrawLanes>(args, inside && rows[inside ? Token(m) : 0].wanted(), best[m],
                            first_row + Token(m));
    }
  }
  // Early finds spare the other blocks most of their scores.
  __device__ void Exchange(int tiles_done) {
    if (tiles_done <= kTilesTold) Leave();
#pragma unroll
    for (int m = 0; m < kItems; ++m) {
      if (Token(m) < kRows && rows[Token(m)].wanted()) {
        best[m].Learn(__ldcg(&args.best[first_row + Token(m)]));
      }
    }
  }
};

template <typename Y, typename Shape>
__device__ void StoreSums(const MmaLinearArgs& args, const PartialSums<Shape>& partial, int used,
                          float bias, const float (&residual)[Shape::kItems], const OutputTile& at,
                          Draws<Y, Shape>& draws) {
  const int output = static_cast<int>(threadIdx.x) % Shape::kOutputs;
  float sums[Shape::kItems];
  float biases[Shape::kItems];
#pragma unroll
  for (int m = 0; m < Shape::kItems; ++m) {
    const int token = Shape::kTokensPerItem * m + static_cast<int>(threadIdx.x) / Shape::kOutputs;
    sums[m] = token < Shape::kRows ? partial.Total(used, token, output) : 0.0f;
    biases[m] = bias;
  }
  FinishSums(args, biases, residual, sums);
#pragma unroll
  for (int m = 0; m < Shape::kItems; ++m) {
    const int token = Shape::kTokensPerItem * m + static_cast<int>(threadIdx.x) / Shape::kOutputs;
    if (token >= Shape::kRows || at.first_row + token >= at.num_rows) break;
    StoreValue<Y>(args, sums[m], at.first_row + token, at.first_output + output);
    draws.See(m, sums[m], at.first_output + output);
  }
}

// Nothing here depends on the step's true counts: rows of the bucket beyond them are computed from
// whatever the buffers hold and read by nobody. That saves a trip to memory before the first load.
template <typename T, typename Y, typename Shape>
__global__ void __launch_bounds__(kLinearThreads, Shape::kMinBlocks)
    FewRowsKernel(const __grid_constant__ MmaLinearArgs args,
                  const __grid_constant__ FewRowsCounts counts) {
  constexpr int kTiles = Shape::kTiles;
  constexpr int kTokenTiles = Shape::kTokenTiles;
  constexpr int kOutputTiles = Shape::kOutputTiles;
  LetNextStart();
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  const int first_row = static_cast<int>(blockIdx.x) * Shape::kRows;
  const int begin = warp * counts.per_segment;  // of this warp's segment
  const int end = min(begin + counts.per_segment, counts.depth);
  const int used = (counts.depth + counts.per_segment - 1) / counts.per_segment;
  const bool works = begin < end;
  int tile = static_cast<int>(blockIdx.y);                // of outputs
  const uint32_t per_output = counts.depth * kTileQuads;  // weights, of 16 outputs
  const uint4* weights = args.weight + lane +
                         static_cast<uint32_t>(tile * kOutputTiles) * int64_t{per_output} +
                         begin * kTileQuads;
  const int64_t next_weights = int64_t{gridDim.y * kOutputTiles} * per_output;
  TileOfWeights a[kTiles][kOutputTiles];
  // A whole segment has no tile that is missing.
  const auto fetch = [&](const uint4* from, int i, int at) __attribute__((always_inline)) {
    if (!Shape::kWhole && at + i >= end) return;
#pragma unroll
    for (int o = 0; o < kOutputTiles; ++o) a[i][o].Load(from + o * per_output + i * kTileQuads);
  };
  if (works) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) fetch(weights, i, begin);
  }
  const int output = thread % Shape::kOutputs;
  float bias = BiasAt(args, tile * Shape::kOutputs + output);
  NormScale ahead[Shape::kNormAhead ? Shape::kNormChunks : 1];
  extern __shared__ __align__(128) std::byte shared[];
  float* scales = reinterpret_cast<float*>(shared);
  LoadScales<Shape>(args, ahead, scales);
  AwaitPrevious();
  __shared__ RowDraw drawn_rows[Draws<Y, Shape>::kRows];
  Draws<Y, Shape> draws(args.draw, first_row, drawn_rows);
  draws.Load();

  T* normed = reinterpret_cast<T*>(scales + (Shape::kNormShared ? 2 * args.depth : 0));
  if constexpr (Shape::kNormChunks > 0) {
    NormRows<Shape>(args, ahead, scales, first_row, counts.rows, normed);
    __syncthreads();
  }
  const T* rows[kTokenTiles];  // where this lane's B of its segment begins
  FindRows<Shape>(args, normed, first_row, counts.rows, begin * kTileDepth + t * 8, rows);
  uint4 kept[Shape::kKeepsB ? kTiles : 1][kTokenTiles];
  if constexpr (Shape::kKeepsB) {
    if (works) KeepB(rows, kept);
  }

  __shared__ PartialSums<Shape> partial[Shape::kBuffers];
  int buffer = 0;
  int tiles_done = 0;
  while (true) {
    float residual[Shape::kItems];  // fetched while the products run
    LoadResiduals<Y, Shape>(args, first_row, counts.rows, tile * Shape::kOutputs + output,
                            residual);
    const int next_tile = tile + static_cast<int>(gridDim.y);
    const bool more = next_tile < counts.outputs;
    float sums[kOutputTiles][kTokenTiles][4] = {};
    const auto add = [&](int i, int j, const uint4& b) __attribute__((always_inline)) {
#pragma unroll
      for (int o = 0; o < kOutputTiles; ++o) AddTile<T>(sums[o][j], a[i][o], b);
    };
    if (works) {
      if constexpr (Shape::kWhole) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int j = 0; j < kTokenTiles; ++j) {
            add(i, j,
                Shape::kKeepsB ? kept[Shape::kKeepsB ? i : 0][j] : LoadB(rows[j] + i * kTileDepth));
          }
          if (more) fetch(weights + next_weights, i, begin);
        }
      } else {
        const uint4* from = weights;
        for (int at = begin; at < end; at += kTiles, from += kTiles * kTileQuads) {
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            if (at + i >= end) break;
#pragma unroll
            for (int j = 0; j < kTokenTiles; ++j) {
              add(i, j, LoadB(rows[j] + (at - begin + i) * kTileDepth));
            }
            fetch(from + kTiles * kTileQuads, i, at + kTiles);
          }
        }
        if (more) {
#pragma unroll
          for (int i = 0; i < kTiles; ++i) fetch(weights + next_weights, i, begin);
        }
      }
    }
    partial[buffer].Put(warp, g, t, sums);
    __syncthreads();
    StoreSums<Y>(args, partial[buffer], used, bias, residual,
                 {first_row, counts.rows, tile * Shape::kOutputs}, draws);
    if (!more) break;
    if (draws.on()) draws.Exchange(++tiles_done);
    tile = next_tile;
    weights += next_weights;
    bias = BiasAt(args, tile * Shape::kOutputs + output);
    // With two buffers the next barrier says that this one is free again.
    if constexpr (Shape::kBuffers == 1) {
      __syncthreads();
    } else {
      buffer ^= 1;
    }
  }
  if (draws.on()) draws.Leave();
}

template <typename T, typename Y, typename Shape>
void LaunchFewRows(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  constexpr auto kKernel = FewRowsKernel<T, Y, Shape>;
  const int64_t shared = NormSharedBytes<Shape>(args.depth);
  if constexpr (Shape::kNormChunks > 0) {
    // Cheap, and remembered by the driver; part of recording, never of a replayed step.
    (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kFusedNormBytes));
  }
  const FewRowsCounts counts{.rows = rows,
                             .outputs = args.outputs / Shape::kOutputs,
                             .depth = args.depth / kTileDepth,
                             .per_segment = SegmentTiles(args.depth)};
  const int32_t groups = CeilDiv(rows, Shape::kRows);
  // As many tiles for every block.
  const int32_t most = std::max(1, context.processors * kBlocksPerProcessor / groups);
  const int32_t blocks = CeilDiv(counts.outputs, CeilDiv(counts.outputs, most));
  LaunchOverlapped(context,
                   {.blocks = dim3(groups, blocks),
                    .threads = kLinearThreads,
                    .shared_bytes = static_cast<size_t>(shared)},
                   kKernel, args, counts);
}

}  // namespace spry::cuda
