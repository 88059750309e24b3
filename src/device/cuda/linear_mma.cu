#include "device/cuda/linear_mma.h"

#include <algorithm>

#include "device/cuda/activate.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/mma.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/weight_tiles.h"

namespace spry::cuda {
namespace {

constexpr int kWarps = kSegments;
constexpr int kThreads = kWarps * kWarpThreads;
constexpr int kTileQuads = kTileElements / 8;  // 16-byte words of a tile, one a lane
constexpr int kFewRows = 64;                   // up to here the kernel that splits K over warps
constexpr int kFusedNormRows = 16;             // up to here every block norms all rows for itself
constexpr int64_t kFusedNormBytes = 112 << 10;
// Blocks that a kernel of few rows has at most, per multiprocessor; each then makes several tiles
// and norms its rows once.
constexpr int kBlocksPerProcessor = 2;

__device__ int SegmentSteps(int steps) { return (steps + kSegments - 1) / kSegments; }

// 0 without a residual.
template <typename Y>
__device__ float LoadResidual(const MmaLinearArgs& args, int32_t row, int32_t n) {
  if (args.residual.data == nullptr) return 0.0f;
  return ToFloat(reinterpret_cast<const Y*>(args.residual.data)[row * args.residual.stride + n]);
}

template <typename Y>
__device__ void Store(const MmaLinearArgs& args, float sum, float residual, int32_t row,
                      int32_t n) {
  if (args.bias != nullptr) sum += args.bias[n];
  sum = ApplyActivation(args.activation, sum);
  if (args.residual.data != nullptr) sum += residual;
  reinterpret_cast<Y*>(args.y.data)[row * args.y.stride + n] = FromFloat<Y>(sum);
}

__device__ inline uint32_t LoadPair(const void* p) { return *static_cast<const uint32_t*>(p); }

// Padding keeps the 8 rows that a warp reads together on different banks: K / 2 words a row plus 4.
__host__ __device__ constexpr int64_t SharedStride(int64_t depth) { return depth + 8; }

// ---- few rows: a block makes 16 outputs of all rows at a time, each warp one segment of K ----

// Steps of weights in flight per lane: as many as registers allow, since what a step costs is the
// latency of memory. A segment of opt-125m's longest K is 24 steps.
template <int kTokenTiles, bool kNorm>
inline constexpr int kAhead = kNorm              ? 8
                              : kTokenTiles == 1 ? 24
                              : kTokenTiles == 2 ? 12
                                                 : 4;

// Shared memory with a norm: its weight and bias [K] f32 each, then the normalised rows.
struct NormSpace {
  float* weight;
  float* bias;
  std::byte* rows;

  __device__ NormSpace(std::byte* shared, int32_t depth)
      : weight(reinterpret_cast<float*>(shared)),
        bias(weight + depth),
        rows(reinterpret_cast<std::byte*>(bias + depth)) {}
  static int64_t Bytes(int32_t depth, int rows) {
    return int64_t{depth} * 2 * sizeof(float) + rows * SharedStride(depth) * 2;
  }
};

// Nothing here depends on the step's true counts: rows of the bucket beyond them are computed from
// whatever the buffers hold and read by nobody. That saves a trip to memory before the first load.
template <typename T, typename Y, int kTokenTiles, bool kNorm>
__global__ void __launch_bounds__(kThreads) FewRowsKernel(MmaLinearArgs args, int32_t num_rows) {
  constexpr int kRows = kTokenTiles * kMmaTokens;
  constexpr int kSteps = kAhead<kTokenTiles, kNorm>;
  constexpr int kItems = (kMmaOutputs * kRows + kThreads - 1) / kThreads;  // of y, per thread
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads;
  const int lane = thread % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  const int steps = args.depth / kMmaDepth;
  const int per_segment = SegmentSteps(steps);
  const int begin = warp * per_segment;
  const int end = min(begin + per_segment, steps);
  const int used = (steps + per_segment - 1) / per_segment;  // segments that are not empty
  const int32_t tiles = args.outputs / kMmaOutputs;
  const uint4* weights = args.weight + lane;
  uint4 a[kSteps];
  const auto fetch = [&](int32_t tile, int i, int step) __attribute__((always_inline)) {
    if (step < end) a[i] = LoadWeights(weights + (int64_t{tile} * steps + step) * kTileQuads);
  };
#pragma unroll
  for (int i = 0; i < kSteps; ++i) fetch(static_cast<int32_t>(blockIdx.x), i, begin + i);
  extern __shared__ __align__(16) std::byte shared[];
  if constexpr (kNorm) {
    const NormSpace space(shared, args.depth);
    for (int i = thread; i < args.depth; i += kThreads) {
      space.weight[i] = args.norm.weight[i];
      if (args.norm.bias != nullptr) space.bias[i] = args.norm.bias[i];
    }
    __syncthreads();
  }
  LetNextStart();
  AwaitPrevious();

  const T* rows[kTokenTiles];  // of this lane's B operands
  if constexpr (kNorm) {
    const NormSpace space(shared, args.depth);
    T* normed = reinterpret_cast<T*>(space.rows);
    const int64_t stride = SharedStride(args.depth);
    NormArgs16 norm = args.norm;
    norm.weight = space.weight;
    norm.bias = space.bias;
    for (int r = warp; r < min(kRows, num_rows); r += kWarps) {
      NormalizeRow(norm, reinterpret_cast<const T*>(args.x.data) + r * args.x.stride,
                   normed + r * stride, args.depth);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) rows[i] = normed + (i * kMmaTokens + g) * stride;
  } else {
#pragma unroll
    for (int i = 0; i < kTokenTiles; ++i) {
      const int32_t r = min(i * kMmaTokens + g, num_rows - 1);
      rows[i] = reinterpret_cast<const T*>(args.x.data) + r * args.x.stride;
    }
  }

  __shared__ float segments[kSegments][kMmaOutputs][kRows + 1];
  for (int32_t tile = static_cast<int32_t>(blockIdx.x); tile < tiles;
       tile += static_cast<int32_t>(gridDim.x)) {
    const int32_t next_tile = tile + static_cast<int32_t>(gridDim.x);
    float extra[kItems];  // residual, fetched while the products run
#pragma unroll
    for (int m = 0; m < kItems; ++m) {
      const int i = m * kThreads + thread;
      extra[m] = LoadResidual<Y>(args, min(i / kMmaOutputs, num_rows - 1),
                                 tile * kMmaOutputs + i % kMmaOutputs);
    }
    float sums[kTokenTiles][4] = {};
    for (int first = begin; first < end; first += kSteps) {
      uint32_t b[kSteps][kTokenTiles][2];
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int k = min(first + i, end - 1) * kMmaDepth + 2 * t;
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) {
          b[i][j][0] = LoadPair(rows[j] + k);
          b[i][j][1] = LoadPair(rows[j] + k + 8);
        }
      }
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        if (first + i >= end) break;
        const uint4 now = a[i];
        fetch(tile, i, first + i + kSteps);
#pragma unroll
        for (int j = 0; j < kTokenTiles; ++j) Mma(T{}, sums[j], now, b[i][j][0], b[i][j][1]);
      }
    }
    if (next_tile < tiles) {
#pragma unroll
      for (int i = 0; i < kSteps; ++i) fetch(next_tile, i, begin + i);
    }
#pragma unroll
    for (int j = 0; j < kTokenTiles; ++j) {
      const int token = j * kMmaTokens + 2 * t;
      segments[warp][g][token] = sums[j][0];
      segments[warp][g][token + 1] = sums[j][1];
      segments[warp][g + 8][token] = sums[j][2];
      segments[warp][g + 8][token + 1] = sums[j][3];
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < kItems; ++m) {
      const int i = m * kThreads + thread;
      const int token = i / kMmaOutputs;
      const int output = i % kMmaOutputs;
      if (token >= kRows || token >= num_rows) break;
      float sum = segments[0][output][token];
      for (int s = 1; s < used; ++s) sum += segments[s][output][token];
      Store<Y>(args, sum, extra[m], token, tile * kMmaOutputs + output);
    }
    __syncthreads();  // `segments` is free again
  }
}

// ---- many rows: a block makes 128 outputs of 64 rows, each warp 16 outputs ----

constexpr int kBlockRows = 64;
constexpr int kBlockTiles = kBlockRows / kMmaTokens;
constexpr int kChunkSteps = 4;
constexpr int kChunk = kChunkSteps * kMmaDepth;
constexpr int kChunkStride = kChunk + 8;

__device__ inline void CopyAsync16(void* shared, const void* global, bool inside) {
  const uint32_t target = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = inside ? 16 : 0;  // the rest becomes 0
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(global),
               "r"(bytes));
}

// Columns [k, k + kChunk) of rows [first, first + kBlockRows).
template <typename T>
__device__ void FetchChunk(const Matrix& x, int32_t first, int32_t num_rows, int32_t k,
                           int32_t depth, T (*chunk)[kChunkStride]) {
  constexpr int kPieces = kChunk / 8;  // of 16 bytes a row
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kPieces; i += kThreads) {
    const int r = i / kPieces;
    const int column = k + i % kPieces * 8;
    const bool inside = first + r < num_rows && column < depth;
    const T* from =
        reinterpret_cast<const T*>(x.data) + (inside ? (first + r) * x.stride + column : 0);
    CopyAsync16(&chunk[r][i % kPieces * 8], from, inside);
  }
  asm volatile("cp.async.commit_group;");
}

template <typename T, typename Y>
__global__ void __launch_bounds__(kThreads) ManyRowsKernel(MmaLinearArgs args, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t num_rows = NumRows(args.x.rows, state);
  const int32_t first_row = static_cast<int32_t>(blockIdx.y) * kBlockRows;
  if (first_row >= num_rows) return;
  __shared__ __align__(16) T chunks[2][kBlockRows][kChunkStride];
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int g = lane / 4;
  const int t = lane % 4;
  const int steps = args.depth / kMmaDepth;
  const int per_segment = SegmentSteps(steps);
  const int32_t tile = static_cast<int32_t>(blockIdx.x) * kWarps + warp;
  const bool works = tile < args.outputs / kMmaOutputs;
  const uint4* weight = args.weight + (works ? int64_t{tile} * steps * kTileQuads : 0) + lane;
  uint4 next[kChunkSteps];
  const auto fetch_weights = [&](int first) {
#pragma unroll
    for (int i = 0; i < kChunkSteps; ++i) {
      if (first + i < steps) next[i] = LoadWeights(weight + (first + i) * kTileQuads);
    }
  };
  float totals[kBlockTiles][4] = {};
  float sums[kBlockTiles][4] = {};
  bool first_segment = true;
  FetchChunk(args.x, first_row, num_rows, 0, args.depth, chunks[0]);
  fetch_weights(0);
  for (int first = 0; first < steps; first += kChunkSteps) {
    const int buffer = first / kChunkSteps % 2;
    if (first + kChunkSteps < steps) {
      FetchChunk(args.x, first_row, num_rows, (first + kChunkSteps) * kMmaDepth, args.depth,
                 chunks[1 - buffer]);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    uint4 now[kChunkSteps];
#pragma unroll
    for (int i = 0; i < kChunkSteps; ++i) now[i] = next[i];
    fetch_weights(first + kChunkSteps);
#pragma unroll
    for (int i = 0; i < kChunkSteps; ++i) {
      const int step = first + i;
      if (step >= steps) break;
      const int k = i * kMmaDepth + 2 * t;
#pragma unroll
      for (int j = 0; j < kBlockTiles; ++j) {
        const T* row = chunks[buffer][j * kMmaTokens + g];
        Mma(T{}, sums[j], now[i], LoadPair(row + k), LoadPair(row + k + 8));
      }
      if ((step + 1) % per_segment != 0 && step + 1 != steps) continue;
#pragma unroll
      for (int j = 0; j < kBlockTiles; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          totals[j][e] = first_segment ? sums[j][e] : totals[j][e] + sums[j][e];
          sums[j][e] = 0.0f;
        }
      }
      first_segment = false;
    }
    __syncthreads();
  }
  if (!works) return;
#pragma unroll
  for (int j = 0; j < kBlockTiles; ++j) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int32_t row = first_row + j * kMmaTokens + 2 * t + e % 2;
      if (row >= num_rows) continue;
      const int32_t n = tile * kMmaOutputs + g + e / 2 * 8;
      Store<Y>(args, totals[j][e], LoadResidual<Y>(args, row, n), row, n);
    }
  }
}

// ---- norm as a kernel of its own, where rows are too many to norm in every block ----

template <typename T>
__global__ void __launch_bounds__(kThreads) NormRowsKernel(MmaLinearArgs args, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t r =
      static_cast<int32_t>(blockIdx.x) * kWarps + static_cast<int32_t>(threadIdx.x) / kWarpThreads;
  if (r >= NumRows(args.x.rows, state)) return;
  NormalizeRow(args.norm, reinterpret_cast<const T*>(args.x.data) + r * args.x.stride,
               reinterpret_cast<T*>(args.normed.data) + r * args.normed.stride, args.depth);
}

template <typename T, typename Y, int kTokenTiles, bool kNorm>
void LaunchFewRows(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  constexpr auto kKernel = FewRowsKernel<T, Y, kTokenTiles, kNorm>;
  const int64_t shared = kNorm ? NormSpace::Bytes(args.depth, kTokenTiles * kMmaTokens) : 0;
  if (kNorm) {
    // Cheap, and remembered by the driver; part of recording, never of a replayed step.
    (void)cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kFusedNormBytes));
  }
  const int32_t blocks =
      std::min(args.outputs / kMmaOutputs, context.processors * kBlocksPerProcessor);
  LaunchOverlapped(
      context,
      {.blocks = dim3(blocks), .threads = kThreads, .shared_bytes = static_cast<size_t>(shared)},
      kKernel, args, rows);
}

template <typename T, typename Y>
void LaunchProduct(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                   const LaunchContext& context) {
  if (rows <= 8) return LaunchFewRows<T, Y, 1, false>(args, rows, context);
  if (rows <= 16) return LaunchFewRows<T, Y, 2, false>(args, rows, context);
  if (rows <= 32) return LaunchFewRows<T, Y, 4, false>(args, rows, context);
  if (rows <= kFewRows) return LaunchFewRows<T, Y, 8, false>(args, rows, context);
  LaunchOverlapped(
      context,
      {.blocks = dim3(CeilDiv(args.outputs / kMmaOutputs, kWarps), CeilDiv(rows, kBlockRows)),
       .threads = kThreads},
      ManyRowsKernel<T, Y>, args, state);
}

template <typename T, typename Y>
void Launch(const void* kept, const StepState& state, const LaunchContext& context) {
  MmaLinearArgs args = ArgsAs<MmaLinearArgs>(kept);
  const int32_t rows = context.shape.Of(args.x.rows);
  if (rows == 0) return;
  if (args.norm.kind == NormKind::kNone) return LaunchProduct<T, Y>(args, rows, state, context);
  const int padded = rows <= kMmaTokens ? kMmaTokens : 2 * kMmaTokens;
  if (rows <= kFusedNormRows && NormSpace::Bytes(args.depth, padded) <= kFusedNormBytes) {
    if (rows <= kMmaTokens) return LaunchFewRows<T, Y, 1, true>(args, rows, context);
    return LaunchFewRows<T, Y, 2, true>(args, rows, context);
  }
  LaunchOverlapped(context, {.blocks = dim3(CeilDiv(rows, kWarps)), .threads = kThreads},
                   NormRowsKernel<T>, args, state);
  args.x = args.normed;
  LaunchProduct<T, Y>(args, rows, state, context);
}

}  // namespace

LaunchFn ChooseMmaLinear(DType activation, DType output) {
  CHECK(activation == DType::kF16 || activation == DType::kBF16);
  CHECK(output == activation || output == DType::kF32);
  if (activation == DType::kF16) {
    return output == DType::kF32 ? Launch<F16, float> : Launch<F16, F16>;
  }
  return output == DType::kF32 ? Launch<Bf16, float> : Launch<Bf16, Bf16>;
}

}  // namespace spry::cuda
