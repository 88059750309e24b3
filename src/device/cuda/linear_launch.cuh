// Which tensor-core kernel makes a linear, by rows and depth. All of them make the same bits.
#pragma once

#include "device/cuda/linear_deep.cuh"
#include "device/cuda/linear_few_rows.cuh"
#include "device/cuda/linear_many_rows.cuh"
#include "device/cuda/linear_wide.cuh"

namespace spry::cuda {

// Depths with an instance of their own: a segment is one run of 3 tiles (K up to 768) or 12 (3072).
inline bool SegmentIs(const MmaLinearArgs& args, int tiles) {
  return SegmentTiles(args.depth) == tiles && args.depth / kTileDepth % tiles == 0;
}

template <typename T, typename Y, int kTokenTiles>
void LaunchFewRowsOf(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (SegmentIs(args, 3)) {
    return LaunchFewRows<T, Y, FewRowsShape<kTokenTiles, 1, 3, true>>(args, rows, context);
  }
  if constexpr (kTokenTiles == 1) {
    if (SegmentIs(args, 12)) {
      return LaunchFewRows<T, Y, FewRowsShape<kTokenTiles, 1, 12, true>>(args, rows, context);
    }
  }
  LaunchFewRows<T, Y, FewRowsShape<kTokenTiles, 1, 4, false>>(args, rows, context);
}

template <typename T, typename Y>
void LaunchProduct(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                   const LaunchContext& context) {
  if (IsDeep(args, rows)) {
    return rows <= 8 ? LaunchDeep<T, Y, 1>(args, rows, context)
                     : LaunchDeep<T, Y, 2>(args, rows, context);
  }
  if (rows <= 8) return LaunchFewRowsOf<T, Y, 1>(args, rows, context);
  // Few outputs leave multiprocessors idle: then more blocks, of fewer rows.
  const auto fits = [&](int block_rows) {
    return args.outputs / kMmaOutputs * CeilDiv(rows, block_rows) <=
           context.processors * kBlocksPerProcessor;
  };
  if (rows <= 16 || fits(16)) return LaunchFewRowsOf<T, Y, 2>(args, rows, context);
  if (rows <= 32 || fits(32)) return LaunchFewRowsOf<T, Y, 4>(args, rows, context);
  if (rows <= kMaxFewRows) return LaunchFewRowsOf<T, Y, 8>(args, rows, context);
  LaunchManyRows<T, Y, ManyRowsShape<4, 4>>(args, rows, state, context);
}

template <typename T, typename Y, int kTokenTiles>
bool LaunchNormedFewRows(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (SegmentIs(args, 3)) {
    LaunchFewRows<T, Y, FewRowsShape<kTokenTiles, 1, 3, true, 3>>(args, rows, context);
    return true;
  }
  if constexpr (kTokenTiles <= 2) {
    using Shape = FewRowsShape<kTokenTiles, 1, 4, false, kMaxRowChunks>;
    if (NormSharedBytes<Shape>(args.depth) > kFusedNormBytes) return false;
    LaunchFewRows<T, Y, Shape>(args, rows, context);
    return true;
  }
  return false;
}

// False: no kernel norms so many rows of this depth on the way in.
template <typename T, typename Y>
bool LaunchNormed(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (IsDeep(args, rows)) return false;
  if (rows <= 8) return LaunchNormedFewRows<T, Y, 1>(args, rows, context);
  if (rows <= 16) return LaunchNormedFewRows<T, Y, 2>(args, rows, context);
  if (rows <= 32) return LaunchNormedFewRows<T, Y, 4>(args, rows, context);
  return false;
}

template <typename T, typename Y>
void LaunchMmaLinear(const void* kept, const StepState& state, const LaunchContext& context) {
  MmaLinearArgs args = ArgsAs<MmaLinearArgs>(kept);
  const int32_t rows = context.shape.Of(args.x.rows);
  if (rows == 0) return;
  if (context.shape.draws) args.draw = MakeDrawArgs(args.best_draws, state);
  if (context.shape.in_order && args.ungathered.data != nullptr) args.x = args.ungathered;
  if (IsWide(args, rows, context)) return LaunchWide<T, Y>(args, rows, context);
  if (args.norm.kind != NormKind::kNone) {
    if (LaunchNormed<T, Y>(args, rows, context)) return;
    LaunchOverlapped(
        context, {.blocks = dim3(CeilDiv(rows, kLinearWarps)), .threads = kLinearThreads},
        args.depth <= 4 * kChunkElements ? NormRowsKernel<T, 4> : NormRowsKernel<T, kMaxRowChunks>,
        args, state);
    args.x = args.normed;
  }
  LaunchProduct<T, Y>(args, rows, state, context);
}

template <typename T>
LaunchFn ChooseMmaLinearOf(DType output) {
  if (output == DType::kF32) return LaunchMmaLinear<T, float>;
  return LaunchMmaLinear<T, T>;
}

}  // namespace spry::cuda
