#include "device/cuda/linear_mma.h"

#include <algorithm>

#include "base/check.h"

#include "device/cuda/weight_tiles.h"

namespace spry::cuda {

// Whole stages of two tiles in every segment.
bool IsStreamed(int64_t outputs, int64_t depth, bool warpgroups) {
  return warpgroups && outputs % kTileOutputs == 0 && depth % (kSegments * 2 * kTileDepth) == 0 &&
         depth >= kMinStreamDepth && outputs * depth >= kMinStreamElements;
}

bool StreamsWhole(int64_t outputs, bool makes_floats, const LaunchContext& context) {
  return makes_floats || outputs / kTileOutputs >= context.processors * kMinWholeGroups;
}

int32_t StreamEights(int64_t outputs, bool makes_floats, int32_t rows,
                     const LaunchContext& context) {
  const bool exchanges = !StreamsWhole(outputs, makes_floats, context);
  if (rows > kMaxStreamRows || (exchanges && (rows < kMinSplitRows || context.clusters == 0))) {
    return 0;
  }
  return rows <= 16 ? 2 : rows <= 32 ? 4 : 8;
}

bool IsResident(int64_t outputs, int64_t depth, bool warpgroups) {
  return warpgroups && outputs % kResidentOutputs == 0 && !IsStreamed(outputs, depth, warpgroups) &&
         (depth == kResidentDepth || depth == kResidentDepth * kResidentBlocks);
}

// Equal segments of whole stages of two or three tiles.
bool IsPipelined(int64_t outputs, int64_t depth, bool warpgroups) {
  const int64_t tiles = depth / kTileDepth;
  const int64_t per_segment = (tiles + kSegments - 1) / kSegments;
  return warpgroups && outputs % kTileOutputs == 0 && depth % kTileDepth == 0 &&
         depth >= kMinPipelinedDepth && tiles % per_segment == 0 &&
         (per_segment % 2 == 0 || per_segment % 3 == 0);
}

int32_t PipelinedEights(int64_t outputs, int64_t depth, int32_t rows,
                        const LaunchContext& context) {
  if (rows < kMinPipelinedRows || !IsPipelined(outputs, depth, context.warpgroups)) return 0;
  const auto tiles = [&](int tokens) {
    return (rows + tokens - 1) / tokens * ((outputs + kPipelinedOutputs - 1) / kPipelinedOutputs);
  };
  // Where few blocks would work, clusters that share K are as fast (linear_warpgroup.cuh).
  if (depth / kTileDepth >= kSegments * kMinSplitTiles && 2 * tiles(64) < context.processors) {
    return 0;
  }
  const auto rounds = [&](int tokens) {
    return (tiles(tokens) + context.processors - 1) / context.processors;
  };
  // A tile of 128 rows takes 1.4 times as long as one of 64 (768 x 3072).
  return rounds(64) * 5 <= rounds(128) * 7 ? 8 : 16;
}

namespace {

// Of whole groups, whatever their size.
int64_t GroupBytes(int32_t rows, int64_t depth) {
  constexpr int32_t kGroup = 128;
  return int64_t{(rows + kGroup - 1) / kGroup * kGroup} * depth * 2;
}

}  // namespace

int64_t PackedRowBytes(int64_t outputs, int64_t depth, int32_t max_rows, bool warpgroups) {
  int32_t most = 0;
  if (IsStreamed(outputs, depth, warpgroups)) most = kMaxStreamRows;
  if (IsResident(outputs, depth, warpgroups)) most = std::max(most, kMaxResidentRows);
  if (IsPipelined(outputs, depth, warpgroups)) most = max_rows;
  return GroupBytes(std::min(max_rows, most), depth);
}

int64_t PackedLogitBytes(int64_t depth, int32_t max_rows, bool warpgroups) {
  return TakesLogits(depth, warpgroups) ? GroupBytes(max_rows, depth) : 0;
}

bool MmaLinearArgs::ArePacked(const LaunchContext& context) const {
  switch (x_handed) {
    case HandOver::kNever: return false;
    case HandOver::kInDecode: return context.shape.decode;
    case HandOver::kWhereResident: return TakesResident(depth, context.shape.Of(x.rows));
    case HandOver::kAlways: return true;
  }
  return false;
}

LaunchFn ChooseMmaLinear(DType activation, DType output) {
  CHECK(activation == DType::kF16 || activation == DType::kBF16);
  CHECK(output == activation || output == DType::kF32);
  return activation == DType::kF16 ? ChooseMmaLinearF16(output) : ChooseMmaLinearBf16(output);
}

}  // namespace spry::cuda
