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

int64_t PackedRowBytes(int64_t outputs, int64_t depth, int32_t max_rows, bool warpgroups) {
  constexpr int32_t kGroup = 64;
  int32_t most = 0;
  if (IsStreamed(outputs, depth, warpgroups)) most = kMaxStreamRows;
  if (IsResident(outputs, depth, warpgroups)) most = std::max(most, kMaxResidentRows);
  const int64_t rows = (std::min(max_rows, most) + kGroup - 1) / kGroup * kGroup;
  return rows * depth * 2;
}

LaunchFn ChooseMmaLinear(DType activation, DType output) {
  CHECK(activation == DType::kF16 || activation == DType::kBF16);
  CHECK(output == activation || output == DType::kF32);
  return activation == DType::kF16 ? ChooseMmaLinearF16(output) : ChooseMmaLinearBf16(output);
}

}  // namespace spry::cuda
