// What a model's sizes may be, whatever file states them: far beyond any model that spry could
// serve, and small enough that products of a few of them do not overflow 64 bits.
#pragma once

#include <string>

#include "base/status.h"
#include "checkpoint/model_config.h"
#include "checkpoint/number_range.h"

namespace spry {

// A row of it fits a CPU worker's scratch in f32 (device/cpu).
inline constexpr IntegerRange kHiddenRange = {1, 1 << 18};
inline constexpr IntegerRange kIntermediateRange = {1, 1 << 26};
inline constexpr IntegerRange kVocabRange = {1, (int64_t{1} << 31) - 1};
inline constexpr IntegerRange kLayerRange = {1, 1024};
inline constexpr IntegerRange kHeadRange = {1, 1 << 16};
inline constexpr IntegerRange kHeadDimRange = {1, 1 << 16};
inline constexpr IntegerRange kPositionRange = {1, (int64_t{1} << 31) - 1};
inline constexpr NumberRange kEpsilonRange = {0.0, 1.0};
inline constexpr NumberRange kRopeThetaRange = {1.0, 1e15};
inline constexpr NumberRange kRopeFactorRange = {1e-3, 1e6};

inline constexpr char kArchitectures[] = "LlamaForCausalLM, OPTForCausalLM";  // that spry serves

// Head counts and sizes that must fit each other. `where` opens the message.
Status CheckHeads(const ModelConfig& config, const std::string& where);

}  // namespace spry
