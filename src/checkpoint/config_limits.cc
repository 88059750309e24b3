#include "checkpoint/config_limits.h"

#include <fmt/format.h>

namespace spry {

Status CheckHeads(const ModelConfig& config, const std::string& where) {
  if (config.num_kv_heads > config.num_heads || config.num_heads % config.num_kv_heads != 0) {
    return InvalidArgument(
        fmt::format("{}: {} attention heads cannot share {} key/value heads evenly", where,
                    config.num_heads, config.num_kv_heads));
  }
  // Rotary position encoding turns pairs; OPT heads are even too.
  if (config.head_dim % 2 != 0) {
    return InvalidArgument(
        fmt::format("{}: the head size is {}, expected an even number", where, config.head_dim));
  }
  return {};
}

}  // namespace spry
