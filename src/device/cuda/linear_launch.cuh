// Which tensor-core kernel makes a linear, by rows and depth. All of them make the same bits.
#pragma once

#include <type_traits>

#include "device/cuda/linear_deep.cuh"
#include "device/cuda/linear_few_rows.cuh"
#include "device/cuda/linear_input.cuh"
#include "device/cuda/linear_logits.cuh"
#include "device/cuda/linear_many_rows.cuh"
#include "device/cuda/linear_pipelined.cuh"
#include "device/cuda/linear_resident.cuh"
#include "device/cuda/linear_stream.cuh"
#include "device/cuda/linear_warpgroup.cuh"
#include "device/cuda/linear_wide.cuh"

namespace spry::cuda {

inline constexpr int32_t kMaxNormedLogits = 32;

// Depths with an instance of their own: a segment is one run of 3 tiles (K up to 768) or 12 (3072).
inline bool SegmentIs(const MmaLinearArgs& args, int tiles) {
  return SegmentTiles(args.depth) == tiles && args.depth / kTileDepth % tiles == 0;
}

// Blocks of kTokenTiles eights of rows by kOutputTiles tiles of outputs, if all of them run at
// once.
template <typename Shape>
bool RunsAtOnce(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context,
                int32_t waves = 1) {
  return args.outputs % Shape::kOutputs == 0 &&
         args.outputs / Shape::kOutputs * CeilDiv(rows, Shape::kRows) <=
             context.processors * Shape::kMinBlocks * waves;
}

// A segment of 12 tiles fills the registers of one block a multiprocessor, and is worth it while
// there is one for every block. False: there is not.
template <typename T, typename Y>
bool LaunchWholeSegments(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (!SegmentIs(args, 12)) return false;
  if (rows <= 8) {
    LaunchFewRows<T, Y, FewRowsShape<1, 1, 12, true>>(args, rows, context);
  } else if (RunsAtOnce<FewRowsShape<2, 1, 12, true>>(args, rows, context)) {
    LaunchFewRows<T, Y, FewRowsShape<2, 1, 12, true>>(args, rows, context);
  } else if (RunsAtOnce<FewRowsShape<4, 1, 12, true>>(args, rows, context)) {
    LaunchFewRows<T, Y, FewRowsShape<4, 1, 12, true>>(args, rows, context);
  } else {
    return false;
  }
  return true;
}

// Warpgroup products pay where there is much to do with the rows in shared memory, or where a long
// K is to be shared out.
using ProductShape = WarpgroupShape<64, 3>;
using SplitShape = WarpgroupShape<64, 2, true>;
inline constexpr int32_t kMaxFewerRows = 128;     // up to here more and smaller blocks are faster
inline constexpr int32_t kMinProductBlocks = 48;  // for which that is worth it

template <typename Shape>
bool UsesWarpgroups(const MmaLinearArgs& args, const LaunchContext& context) {
  return context.warpgroups && ServesDepth<Shape>(args.depth);
}

// More than kMaxFewerRows. False: other kernels are faster, or alone.
template <typename T>
bool LaunchProductOfMany(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                         const LaunchContext& context) {
  const int32_t blocks =
      CeilDiv(args.outputs, ProductShape::kOutputs) * CeilDiv(rows, ProductShape::kTokens);
  if (blocks >= kMinProductBlocks && UsesWarpgroups<ProductShape>(args, context)) {
    LaunchWarpgroup<T, ProductShape>(args, rows, state, context);
    return true;
  }
  if (SegmentTiles(args.depth) >= kMinSplitTiles && UsesWarpgroups<SplitShape>(args, context)) {
    LaunchWarpgroup<T, SplitShape>(args, rows, state, context);
    return true;
  }
  return false;
}

// More than 8 rows and at most kMaxFewRows. Blocks of more rows read weights less often; of fewer
// rows, there are more of them.
template <typename T, typename Y>
void LaunchProductOfFew(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (SegmentIs(args, 3) && args.outputs % (2 * kMmaOutputs) == 0) {
    using Small = FewRowsShape<2, 2, 3, true>;
    using Large = FewRowsShape<4, 2, 3, true>;
    if (!RunsAtOnce<Small>(args, rows, context) && RunsAtOnce<Large>(args, rows, context)) {
      return LaunchFewRows<T, Y, Large>(args, rows, context);
    }
    return LaunchFewRows<T, Y, Small>(args, rows, context);
  }
  if (rows <= 16 || RunsAtOnce<FewRowsShape<2, 1, 4, false>>(args, rows, context)) {
    return LaunchFewRows<T, Y, FewRowsShape<2, 1, 4, false>>(args, rows, context);
  }
  if (rows <= 32 || RunsAtOnce<FewRowsShape<4, 1, 4, false>>(args, rows, context)) {
    return LaunchFewRows<T, Y, FewRowsShape<4, 1, 4, false>>(args, rows, context);
  }
  LaunchFewRows<T, Y, FewRowsShape<8, 1, 4, false>>(args, rows, context);
}

template <typename T, typename Y>
void LaunchProduct(const MmaLinearArgs& args, int32_t rows, const StepState& state,
                   const LaunchContext& context) {
  if (IsDeep(args, rows)) {
    return rows <= 8 ? LaunchDeep<T, Y, 1>(args, rows, context)
                     : LaunchDeep<T, Y, 2>(args, rows, context);
  }
  if (rows <= kMaxFewerRows && LaunchWholeSegments<T, Y>(args, rows, context)) return;
  if (rows <= 8) {
    if (SegmentIs(args, 3)) {
      return LaunchFewRows<T, Y, FewRowsShape<1, 1, 3, true>>(args, rows, context);
    }
    return LaunchFewRows<T, Y, FewRowsShape<1, 1, 4, false>>(args, rows, context);
  }
  if constexpr (!std::is_same_v<Y, float>) {
    if (rows > kMaxFewerRows && LaunchProductOfMany<T>(args, rows, state, context)) return;
  }
  if (rows <= kMaxFewRows) return LaunchProductOfFew<T, Y>(args, rows, context);
  if (args.outputs / 64 * CeilDiv(rows, 64) < context.processors) {
    return LaunchManyRows<T, Y, ManyRowsShape<4, 2>>(args, rows, state, context);
  }
  LaunchManyRows<T, Y, ManyRowsShape<4, 4>>(args, rows, state, context);
}

template <typename T, typename Y, typename Shape>
bool LaunchNormedAs(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  LaunchFewRows<T, Y, Shape>(args, rows, context);
  return true;
}

// A norm on the way in is made by every block again: worth it while that is less than a launch.
// False: it is not.
template <typename T, typename Y>
bool LaunchNormed(const MmaLinearArgs& args, int32_t rows, const LaunchContext& context) {
  if (!SegmentIs(args, 3) || rows > kMaxFewerRows) return false;
  if (rows <= 8) return LaunchNormedAs<T, Y, FewRowsShape<1, 1, 3, true, 3>>(args, rows, context);
  if constexpr (std::is_same_v<Y, float>) {
    return rows <= kMaxNormedLogits &&
           LaunchNormedAs<T, Y, FewRowsShape<4, 1, 3, true, 3>>(args, rows, context);
  } else {
    using Narrow = FewRowsShape<2, 2, 3, true, 3>;
    using Broad = FewRowsShape<2, 4, 3, true, 3>;  // fewer blocks, so fewer norms
    if (RunsAtOnce<Broad>(args, rows, context)) {
      return LaunchNormedAs<T, Y, Broad>(args, rows, context);
    }
    return RunsAtOnce<Narrow>(args, rows, context, /*waves=*/3) &&
           LaunchNormedAs<T, Y, Narrow>(args, rows, context);
  }
}

template <typename T, typename Y>
void LaunchMmaLinear(const void* kept, const StepState& state, const LaunchContext& context) {
  MmaLinearArgs args = ArgsAs<MmaLinearArgs>(kept);
  const int32_t rows = context.shape.Of(args.x.rows);
  if (rows == 0) return;
  if (context.shape.draws) {
    args.draw = MakeDrawArgs(args.best_draws, state);
    args.stores = args.best_draws == nullptr;
  }
  if (context.shape.in_order && args.ungathered.data != nullptr) args.x = args.ungathered;
  if (LaunchStream<T, Y>(args, rows, state, context)) return;
  if constexpr (std::is_same_v<Y, float>) {
    if (LaunchLogits<T>(args, rows, state, context)) return;
  } else {
    if (LaunchResident<T>(args, rows, state, context)) return;
    if (LaunchPipelined<T>(args, rows, state, context)) return;
  }
  const bool norms = args.norm.kind != NormKind::kNone;
  const bool wide = IsWide<Y>(args, rows, context);
  const bool norms_inside = norms && IsShortRow(args.depth);
  if (wide && rows <= kMaxWideRows && norms == norms_inside) {
    return LaunchWide<T, Y>(args, rows, context);
  }
  if (norms_inside && !wide && LaunchNormed<T, Y>(args, rows, context)) return;
  if (norms) {
    LaunchNormRows<T>(args, rows, {.data = args.normed.data, .stride = args.normed.stride},
                      context);
    args.x = args.normed;
    args.norm = {};
  }
  if (wide) return LaunchWide<T, Y>(args, rows, context);
  LaunchProduct<T, Y>(args, rows, state, context);
}

template <typename T>
LaunchFn ChooseMmaLinearOf(DType output) {
  if (output == DType::kF32) return LaunchMmaLinear<T, float>;
  return LaunchMmaLinear<T, T>;
}

}  // namespace spry::cuda
