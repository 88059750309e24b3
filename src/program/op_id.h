// The ops a Program may hold. The contract of each is its header in src/ops.
#pragma once

#include <cstdint>
#include <string_view>

namespace spry {

enum class OpId : uint8_t {
  kStage,  // copies the step's slot to the fixed addresses, applies diffs
  kEmbed,
  kLayerNorm,
  kRmsNorm,
  kLinear,
  kRope,
  kWriteKv,
  kAttention,
  kActivation,
  kGatedActivation,
  kAdd,
  kGatherSamples,
  kSample,
  kAdvance,  // feeds the sampled tokens back into the rows, writes the result ring
};
inline constexpr int kNumOps = static_cast<int>(OpId::kAdvance) + 1;

std::string_view OpName(OpId id);  // "rms_norm"

}  // namespace spry
