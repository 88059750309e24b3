// How a device with graphs launches a step: what --graph-mode and --splitting-ops say.
#pragma once

#include <cstdint>
#include <vector>

#include "program/op_id.h"

namespace spry {

enum class GraphMode : uint8_t {
  kAuto,       // full, or piecewise where the attention backend cannot be captured
  kNone,       // every op is launched on its own
  kPiecewise,  // a graph between splitting ops, which are launched on their own
  kFull,       // one graph a step
};

struct GraphOptions {
  GraphMode mode = GraphMode::kAuto;
  // Of piecewise. Empty: attention, and write_kv where it is an op of its own.
  std::vector<OpId> splitting_ops;
};

}  // namespace spry
