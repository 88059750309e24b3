#include "runtime/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace spry {
namespace {

constexpr int kMaxRunAhead = 64;
constexpr int kMaxRows = 1 << 16;
constexpr int kDefaultRuleSlots = 64;
constexpr double kShareOfFree = 0.25;  // of a machine that has other work
// Far more than a machine's memory holds; the host keeps a record of each.
constexpr int64_t kMaxBlocks = int64_t{1} << 24;

std::string Size(int64_t bytes) {
  if (bytes < (1 << 16)) return fmt::format("{} bytes", bytes);  // not as 0.0 MiB
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

Status CheckOptions(const MemoryOptions& options) {
  const auto refuse = [](const char* flag, int64_t value, const char* range) {
    return InvalidArgument(fmt::format("{} is {}; it must be {}", flag, value, range));
  };
  if (options.max_rows < 0 || options.max_rows > kMaxRows) {
    return refuse("--max-num-seqs", options.max_rows, "from 1 to 65536");
  }
  if (options.max_step_tokens < 0 || options.max_step_tokens > (1 << 20)) {
    return refuse("--max-num-batched-tokens", options.max_step_tokens, "from 1 to 1048576");
  }
  const int size = options.block_size;
  if (size < 8 || size > 256 || (size & (size - 1)) != 0) {
    return refuse("--block-size", size, "a power of two from 8 to 256");
  }
  if (options.run_ahead < 0 || options.run_ahead > kMaxRunAhead) {
    return refuse("--run-ahead", options.run_ahead, "from 1 to 64");
  }
  const int rule_slots = options.max_rule_slots.value_or(0);
  if (rule_slots < 0 || rule_slots > kMaxRows) {
    return refuse("--max-rule-slots", rule_slots, "from 0 to 65536");
  }
  if (options.kv_bytes < 0) {
    return refuse("--kv-cache-memory-bytes", options.kv_bytes, "positive");
  }
  return {};
}

// Everything that does not depend on how many blocks there are.
StepLimits LimitsFor(const MemoryOptions& options, const DeviceDefaults& defaults, int64_t max_len,
                     int64_t vocab_size) {
  StepLimits limits;
  limits.block_size = options.block_size;
  limits.max_rows = options.max_rows > 0 ? options.max_rows : defaults.max_rows;
  limits.max_tokens = options.max_step_tokens > 0
                          ? options.max_step_tokens
                          : std::max(defaults.max_step_tokens, limits.max_rows);
  limits.max_samples = limits.max_rows + kPromptLogprobSamples;
  limits.max_blocks_per_row =
      static_cast<int32_t>((max_len + options.block_size - 1) / options.block_size);
  limits.max_block_writes =
      limits.max_blocks_per_row + limits.max_rows + limits.max_tokens / options.block_size;
  limits.max_rule_slots =
      std::min(options.max_rule_slots.value_or(kDefaultRuleSlots), limits.max_rows);
  limits.vocab_size = static_cast<int32_t>(vocab_size);
  limits.ring_size = (options.run_ahead > 0 ? options.run_ahead : defaults.run_ahead) + 1;
  return limits;
}

int64_t FixedBytes(const MemoryNeeds& needs) {
  return needs.weights + needs.activations + needs.step + needs.graphs;
}

std::string FixedNeeds(const MemoryNeeds& needs) {
  std::string text = fmt::format("weights {}, activations {}, step memory {}", Size(needs.weights),
                                 Size(needs.activations), Size(needs.step));
  if (needs.graphs > 0) text += fmt::format(", graphs up to {}", Size(needs.graphs));
  return text;
}

// The flag's bytes, when they fit beside what else the device must hold.
Result<int64_t> CheckKvBytes(const MemoryOptions& options, const MemoryNeeds& needs, int64_t left) {
  const std::string found = fmt::format("--kv-cache-memory-bytes is {}", Size(options.kv_bytes));
  if (options.kv_bytes > left) {
    return ResourceExhausted(fmt::format("{}, but {} is free beside {}; lower it", found,
                                         Size(std::max<int64_t>(left, 0)), FixedNeeds(needs)));
  }
  if (options.kv_bytes / needs.kv_per_block > kMaxBlocks) {
    return ResourceExhausted(
        fmt::format("{}, {} blocks of {}; lower it to {} blocks, or raise --block-size", found,
                    options.kv_bytes / needs.kv_per_block, Size(needs.kv_per_block), kMaxBlocks));
  }
  return options.kv_bytes;
}

// Bytes for KV: what the flag says, or what the device can spare, never more than rows can use.
Result<int64_t> KvBudget(const Device& device, const MemoryOptions& options,
                         const MemoryNeeds& needs, const StepLimits& limits) {
  const DeviceInfo info = device.info();
  const int64_t fixed = FixedBytes(needs);
  if (options.kv_bytes > 0) {
    return CheckKvBytes(options, needs, info.free_memory_bytes - fixed);
  }
  const int64_t spare =
      device.defaults().own_memory
          ? static_cast<int64_t>(static_cast<double>(info.memory_bytes) *
                                 options.device_memory_share) -
                (info.memory_bytes - info.free_memory_bytes) - fixed
          : static_cast<int64_t>(static_cast<double>(info.free_memory_bytes - fixed) *
                                 kShareOfFree);
  if (spare < needs.kv_per_block) {
    return ResourceExhausted(
        fmt::format("the model does not fit: {}, of {} free; a smaller --max-model-len, "
                    "--max-num-batched-tokens or --max-num-seqs, or a smaller model, helps",
                    FixedNeeds(needs), Size(info.free_memory_bytes)));
  }
  const int64_t useful_blocks = int64_t{limits.max_rows} * limits.max_blocks_per_row;
  return std::min({spare / needs.kv_per_block, useful_blocks, kMaxBlocks}) * needs.kv_per_block;
}

}  // namespace

std::string MemoryPlan::ToString() const {
  return fmt::format(
      "{}, KV cache {} ({} blocks of {} tokens); max_model_len {}, {} sequences, {} tokens a step, "
      "{} step{} in flight, {} rule slots ({} of the step memory)",
      FixedNeeds(needs), Size(kv_bytes), limits.num_blocks, limits.block_size, max_model_len,
      limits.max_rows, limits.max_tokens, run_ahead, run_ahead == 1 ? "" : "s",
      limits.max_rule_slots, Size(RuleSlotBytes(limits)));
}

std::string MemoryPlan::Summary() const {
  return fmt::format("weights {}, KV cache {}, max_model_len {}, {} sequence{}",
                     Size(needs.weights), Size(kv_bytes), max_model_len, limits.max_rows,
                     limits.max_rows == 1 ? "" : "s");
}

Result<int64_t> LongestSequence(const MemoryOptions& options, int64_t model_max_position) {
  if (options.max_model_len == 0) return model_max_position;
  if (options.max_model_len < 2 || options.max_model_len > model_max_position) {
    return InvalidArgument(fmt::format("--max-model-len is {}; this model takes from 2 to {}",
                                       options.max_model_len, model_max_position));
  }
  return options.max_model_len;
}

Result<MemoryPlan> PlanMemory(const Device& device, const Program& program,
                              const MemoryOptions& options, int64_t longest_sequence,
                              const std::string& attention_backend) {
  SPRY_RETURN_IF_ERROR(CheckOptions(options));
  MemoryPlan plan;
  plan.limits = LimitsFor(options, device.defaults(), longest_sequence, program.vocab_size);
  plan.run_ahead = plan.limits.ring_size - 1;
  plan.max_model_len = longest_sequence;
  SPRY_ASSIGN_OR_RETURN(plan.needs, device.Plan(program, {.limits = plan.limits,
                                                          .attention_backend = attention_backend}));
  SPRY_ASSIGN_OR_RETURN(const int64_t budget, KvBudget(device, options, plan.needs, plan.limits));
  const int64_t blocks = budget / plan.needs.kv_per_block;
  if (blocks == 0) {
    return ResourceExhausted(
        fmt::format("a KV block of {} tokens takes {} but --kv-cache-memory-bytes is {}; raise "
                    "--kv-cache-memory-bytes",
                    options.block_size, Size(plan.needs.kv_per_block), Size(budget)));
  }
  const int64_t tokens = blocks * options.block_size;
  if (tokens < plan.max_model_len) {
    if (options.max_model_len > 0) {
      return ResourceExhausted(fmt::format(
          "one sequence of {} tokens needs {} of KV cache but {} is planned; lower --max-model-len "
          "to {} or raise --kv-cache-memory-bytes",
          plan.max_model_len, Size(plan.limits.max_blocks_per_row * plan.needs.kv_per_block),
          Size(budget), tokens));
    }
    plan.max_model_len = tokens;
    plan.limits.max_blocks_per_row = static_cast<int32_t>(blocks);
  }
  plan.limits.num_blocks = static_cast<int32_t>(blocks);
  plan.kv_bytes = blocks * plan.needs.kv_per_block;
  return plan;
}

}  // namespace spry
