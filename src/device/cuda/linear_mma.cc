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

int64_t PackedRowBytes(int64_t outputs, int64_t depth, int32_t max_rows, bool warpgroups) {
  constexpr int32_t kGroup = 128;
  int32_t most = 0;
  if (IsStreamed(outputs, depth, warpgroups)) most = kMaxStreamRows;
  if (IsResident(outputs, depth, warpgroups)) most = std::max(most, kMaxResidentRows);
  if (IsPipelined(outputs, depth, warpgroups)) most = max_rows;
  const int64_t rows = (std::min(max_rows, most) + kGroup - 1) / kGroup * kGroup;
  return rows * depth * 2;
}

LaunchFn ChooseMmaLinear(DType activation, DType output) {
  CHECK(activation == DType::kF16 || activation == DType::kBF16);
  CHECK(output == activation || output == DType::kF32);
  return activation == DType::kF16 ? ChooseMmaLinearF16(output) : ChooseMmaLinearBf16(output);
}

}  // namespace spry::cuda
