#include "ops/attention/backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ops/attention/attention.h"
#include "program/program.h"

namespace spry {
namespace {

std::string Names(const std::vector<DType>& dtypes) {
  std::vector<std::string_view> names;
  for (const DType dtype : dtypes) names.push_back(Traits(dtype).name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool Contains(const auto& list, const auto& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

std::vector<std::string> ReasonsAgainst(const AttentionBackend& backend,
                                        const AttentionConfig& config) {
  std::vector<std::string> reasons;
  if (!Contains(backend.activations, config.activation)) {
    reasons.push_back(fmt::format("activations are {}, it takes {}", Traits(config.activation).name,
                                  Names(backend.activations)));
  }
  if (!Contains(backend.kvs, config.kv)) {
    reasons.push_back(
        fmt::format("the KV cache is {}, it takes {}", Traits(config.kv).name, Names(backend.kvs)));
  }
  for (const int head_dim : {config.head_dim, config.v_head_dim}) {
    if (!backend.head_dims.empty() && !Contains(backend.head_dims, head_dim)) {
      reasons.push_back(fmt::format("the head size is {}, it takes {}", head_dim,
                                    fmt::join(backend.head_dims, ", ")));
      break;
    }
  }
  const bool power_of_two =
      config.block_size > 0 && (config.block_size & (config.block_size - 1)) == 0;
  if (!power_of_two || config.block_size < backend.min_block_size ||
      config.block_size > backend.max_block_size) {
    reasons.push_back(fmt::format("the block size is {}, it takes powers of two from {} to {}",
                                  config.block_size, backend.min_block_size,
                                  backend.max_block_size));
  }
  if (config.grouped_heads && !backend.grouped_heads) {
    reasons.push_back("query heads share KV heads, it takes as many of both");
  }
  if (config.window && !backend.window) reasons.push_back("it has no sliding window");
  if (config.soft_cap && !backend.soft_cap) reasons.push_back("it has no soft cap");
  if (config.alibi && !backend.alibi) reasons.push_back("it has no alibi");
  if (config.sinks && !backend.sinks) reasons.push_back("it has no sinks");
  return reasons;
}

Result<int> SelectAttentionBackend(std::span<const AttentionBackend> backends,
                                   const AttentionConfig& config, std::string_view name) {
  std::vector<std::string> refusals;
  std::vector<std::string_view> names;
  for (int i = 0; i < static_cast<int>(backends.size()); ++i) {
    names.push_back(backends[i].name);
    if (!name.empty() && backends[i].name != name) continue;
    const std::vector<std::string> reasons = ReasonsAgainst(backends[i], config);
    if (reasons.empty()) return i;
    refusals.push_back(fmt::format("{}: {}", backends[i].name, fmt::join(reasons, "; ")));
  }
  if (refusals.empty()) {
    return NotFound(fmt::format("there is no attention backend \"{}\" on this device; it has {}",
                                name, fmt::join(names, ", ")));
  }
  return Unimplemented(
      fmt::format("no attention backend can serve this: {}", fmt::join(refusals, " | ")));
}

AttentionConfig AttentionConfigOf(const Program& program, int block_size) {
  AttentionConfig config{.block_size = block_size};
  for (const OpRecord& op : program.ops) {
    if (op.id != OpId::kAttention) continue;
    const AttentionParams params = op.params.As<AttentionParams>();
    config.activation = op.inputs[0].dtype;
    config.kv = program.kv_layers[params.layer.value()].dtype;
    config.head_dim = params.head_dim;
    config.v_head_dim = params.v_head_dim;
    config.grouped_heads |= params.num_heads != params.num_kv_heads;
    config.window |= params.window > 0;
    config.soft_cap |= params.soft_cap > 0.0f;
    config.alibi |= params.has_alibi;
    config.sinks |= params.has_sinks;
  }
  return config;
}

}  // namespace spry
