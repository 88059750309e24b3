// How much of everything fits, by arithmetic, before anything is loaded.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "device/device.h"
#include "program/program.h"

namespace spry {

// Prompt tokens whose log-probabilities a step can compute beside a sample of every row. Bounds the
// logits that are kept: a chunk of a prompt is cut so that it fits.
inline constexpr int kPromptLogprobSamples = 64;

struct MemoryOptions {
  int max_rows = 0;           // --max-num-seqs; 0: the device's default
  int max_step_tokens = 0;    // --max-num-batched-tokens; 0: the device's default
  int64_t max_model_len = 0;  // tokens; 0: the model's, or the largest that fits
  int block_size = 16;
  int64_t kv_bytes = 0;              // --kv-cache-memory-bytes; 0: from what is free
  double device_memory_share = 0.9;  // --gpu-memory-utilization; CUDA
  int run_ahead = 0;                 // steps in flight; 0: the device's default
  // --max-rule-slots: running requests with penalties, biases or restrictions; absent: up to 64
  std::optional<int> max_rule_slots;
};

struct MemoryPlan {
  MemoryNeeds needs;
  StepLimits limits;
  int64_t max_model_len = 0;
  int64_t kv_bytes = 0;
  int run_ahead = 1;

  // "weights 95.3 MiB, activations ..., KV cache ... (N blocks of 16 tokens)", and all limits.
  std::string ToString() const;
  // "weights 95.3 MiB, KV cache ...": what most people ask.
  std::string Summary() const;
};

// The longest sequence worth tracing for: what was asked, or the model's own.
Result<int64_t> LongestSequence(const MemoryOptions& options, int64_t model_max_position);

// ResourceExhausted with the numbers and the flag that helps when an explicit wish does not fit.
Result<MemoryPlan> PlanMemory(const Device& device, const Program& program,
                              const MemoryOptions& options, int64_t longest_sequence,
                              const std::string& attention_backend);

}  // namespace spry
