// What happens to rows before the kernel of a linear takes them, as a kernel of its own: their
// norm, and their place. A norm is a warp a row while a warp can hold it (the same bits as in the
// linear, normalize.cuh), else a block a row: rows as long as that are normed here alone.
#pragma once

#include <cstdint>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/warpgroup_mma.cuh"

namespace spry::cuda {

inline constexpr int kPackedBlockBytes = 4 * kCoreBytes;  // 8 rows of a tile
inline constexpr int kShortRowChunks = 4;
inline bool IsShortRow(int32_t width) { return width <= kShortRowChunks * kChunkElements; }

// Columns [column, column + 8) of row `row` of eight, to the core matrices of their tile.
__device__ inline void PutPacked(std::byte* block, int row, int column, const uint4& bits) {
  auto* to = reinterpret_cast<uint32_t*>(block) + row * 4 + column % kTileDepth / 8;
  to[0] = bits.x;
  to[kCoreBytes / 4] = bits.y;
  to[kCoreBytes / 2] = bits.z;
  to[kCoreBytes / 4 * 3] = bits.w;
}

// Where rows go. Packed, for bulk copies: groups of `eights` times 8 rows, in each the tiles
// of 32 along K, in each the eights, in each four core matrices (warpgroup_mma.cuh). Lane t of a
// quad has columns [8 t, 8 t + 8) of a tile (weight_tiles.h), two of them in each core matrix.
struct InputPlace {
  std::byte* data = nullptr;
  int64_t stride = 0;  // of rows that lie one by one, in elements
  int32_t eights = 0;  // 0: rows lie one by one
  int32_t tiles = 0;

  // Columns [column, column + 8) of a row.
  __device__ void Put(int32_t row, int32_t column, const uint4& bits) const {
    if (eights == 0) {
      *reinterpret_cast<uint4*>(data + (row * stride + column) * 2) = bits;
      return;
    }
    const int32_t eight = row / 8;
    const int64_t block =
        (int64_t{eight / eights} * tiles + column / kTileDepth) * eights + eight % eights;
    PutPacked(data + block * kPackedBlockBytes, row % 8, column, bits);
  }
};

// Rows of the bucket beyond the step's true count are normed for nobody: asking for the count would
// take as long as the rows themselves. Scales come while the kernel before this one still runs.
inline constexpr int kNormRowWarps = 4;
template <typename T>
__global__ void __launch_bounds__(kNormRowWarps* kWarpThreads)
    NormRowsKernel(const __grid_constant__ MmaLinearArgs args, int32_t rows,
                   const __grid_constant__ InputPlace place) {
  LetNextStart();
  const int32_t r = static_cast<int32_t>(blockIdx.x) * kNormRowWarps +
                    static_cast<int32_t>(threadIdx.x) / kWarpThreads;
  const int32_t lane_first = static_cast<int32_t>(threadIdx.x) % kWarpThreads * 8;
  NormScale scales[kShortRowChunks];
#pragma unroll
  for (int c = 0; c < kShortRowChunks; ++c) {
    const int32_t first = lane_first + c * kChunkElements;
    if (first < args.depth) scales[c].Load(args.norm, first);
  }
  AwaitPrevious();
  if (r >= rows) return;
  RowChunks<kShortRowChunks> row[1];
  row[0].Load(reinterpret_cast<const T*>(args.x.data) + r * args.x.stride, args.depth);
  NormalizeRows<T>(
      args.norm, row, args.depth, [&](int c, int32_t) { return scales[c]; }, [] {},
      [&](int, int32_t first, const uint4& bits) { place.Put(r, first, bits); });
}

template <typename T>
__global__ void __launch_bounds__(kLinearThreads)
    NormLongRowsKernel(const __grid_constant__ MmaLinearArgs args,
                       const __grid_constant__ InputPlace place) {
  constexpr int kChunks = kMaxRowChunks / kLinearWarps;  // of a thread
  LetNextStart();
  const int32_t r = static_cast<int32_t>(blockIdx.x);
  const int32_t first = static_cast<int32_t>(threadIdx.x) * 8;
  const auto inside = [&](int c) { return first + c * kLinearThreads * 8 < args.depth; };
  NormScale scales[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (inside(c)) scales[c].Load(args.norm, first + c * kLinearThreads * 8);
  }
  AwaitPrevious();
  const T* x = reinterpret_cast<const T*>(args.x.data) + r * args.x.stride + first;
  RowChunks<kChunks> row;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    row.bits[c] = inside(c) ? *reinterpret_cast<const uint4*>(x + c * kLinearThreads * 8)
                            : make_uint4(0, 0, 0, 0);
  }
  float values[kChunks][8];
  row.template Widen<T>(values);
  const auto add = [](float a, float b) { return a + b; };
  if (args.norm.kind == NormKind::kLayer) {
    float sum = 0.0f;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += values[c][e];
    }
    const float mean = BlockReduce<kLinearThreads>(sum, add) * args.norm.inverse_width;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int e = 0; e < 8; ++e) values[c][e] = inside(c) ? values[c][e] - mean : 0.0f;
    }
  }
  float squares = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
#pragma unroll
    for (int e = 0; e < 8; ++e) squares = fmaf(values[c][e], values[c][e], squares);
  }
  squares = BlockReduce<kLinearThreads>(squares, add);
  const float factor = rsqrtf(fmaf(squares, args.norm.inverse_width, args.norm.epsilon));
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (!inside(c)) break;
    place.Put(r, first + c * kLinearThreads * 8, Scaled<T>(values[c], factor, scales[c]));
  }
}

template <typename T>
void LaunchNormRows(const MmaLinearArgs& args, int32_t rows, const InputPlace& place,
                    const LaunchContext& context) {
  if (IsShortRow(args.depth)) {
    return LaunchOverlapped(
        context,
        {.blocks = dim3(CeilDiv(rows, kNormRowWarps)), .threads = kNormRowWarps * kWarpThreads},
        NormRowsKernel<T>, args, rows, place);
  }
  LaunchOverlapped(context, {.blocks = dim3(rows), .threads = kLinearThreads},
                   NormLongRowsKernel<T>, args, place);
}

// A warp packs 8 rows of a tile, so that what it stores lies together. Rows beyond the step's true
// count too.
static __global__ void __launch_bounds__(kLinearThreads)
    PackRowsKernel(const __grid_constant__ Matrix x, int32_t rows, int32_t tiles,
                   const __grid_constant__ InputPlace place) {
  LetNextStart();
  AwaitPrevious();
  const auto warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const auto lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int32_t row = static_cast<int32_t>(blockIdx.x) * 8 + lane / 4;
  const int32_t tile = static_cast<int32_t>(blockIdx.y) * kLinearWarps + warp;
  if (row >= rows || tile >= tiles) return;
  const int32_t column = tile * kTileDepth + lane % 4 * 8;
  place.Put(row, column, *reinterpret_cast<const uint4*>(x.data + (row * x.stride + column) * 2));
}

inline void LaunchPackRows(const MmaLinearArgs& args, int32_t rows, const InputPlace& place,
                           const LaunchContext& context) {
  const int32_t tiles = args.depth / kTileDepth;
  LaunchOverlapped(
      context,
      {.blocks = dim3(CeilDiv(rows, 8), CeilDiv(tiles, kLinearWarps)), .threads = kLinearThreads},
      PackRowsKernel, args.x, rows, tiles, place);
}

}  // namespace spry::cuda
