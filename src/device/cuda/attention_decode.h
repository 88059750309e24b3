// Attention of a decode step: one token a row (attention_decode.cuh).
#pragma once

#include "device/cuda/attention_inputs.cuh"
#include "device/cuda/attention_plan.h"
#include "device/cuda/row_taker.h"

namespace spry::cuda {

struct DecodeArgs : AttentionInputs {
  int32_t heads = 1;        // of a unit: a divisor of the group
  int32_t head_blocks = 1;  // units of a KV head and token
  float scale_log2 = 1.0f;  // of scores, to exponents of 2
  AttentionScratch scratch;
  RowTaker taker;  // of out, in a decode step
  // A decode step rotates whole heads by it, halves with halves; null: rope is a launch before.
  const float* rope_table = nullptr;
};

// T: F16 or Bf16, of activations and cache. Heads of 64 or 128.
template <typename T>
void LaunchDecode(const DecodeArgs& args, const StepState& state, const LaunchContext& context);

}  // namespace spry::cuda
