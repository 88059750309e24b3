// What happens to rows before the kernel of a linear takes them, as a kernel of its own: their
// norm, and their place. A norm is a warp a row while a warp can hold it (the same bits as in the
// linear, normalize.cuh), else a block a row: rows as long as that are normed here alone.
#pragma once

#include <cstdint>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/linear_tile.cuh"
#include "device/cuda/normalize.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/packed_rows.cuh"

namespace spry::cuda {

inline constexpr int kShortRowChunks = 4;
inline bool IsShortRow(int32_t width) { return width <= kShortRowChunks * kChunkElements; }

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

// What a linear that takes packed rows launches first: its norm, or the packing that nobody has
// done.
template <typename T>
void LaunchRowsTo(const InputPlace& place, const MmaLinearArgs& args, int32_t rows,
                  const LaunchContext& context) {
  if (args.norm.kind != NormKind::kNone) {
    LaunchNormRows<T>(args, rows, place, context);
  } else if (!args.ArePacked(context)) {
    LaunchPackRows(args, rows, place, context);
  }
}

}  // namespace spry::cuda
