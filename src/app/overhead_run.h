// The measuring half of `spry bench overhead`: the engine with opt-125m's shape on some device,
// rows that neither join nor leave, and the host's share of each step.
#pragma once

#include <optional>

#include "app/flags.h"
#include "base/status.h"
#include "device/launch_costs.h"

namespace spry {

struct OverheadOptions {
  DeviceFlags device;
  bool prefix_caching = true;
  int run_ahead = 1;
  int steps = 0;
};

// Times in nanoseconds. The host's time of a step is what it took without waiting for results.
struct Overhead {
  int rows = 0;
  double host_p50 = 0;
  double host_p99 = 0;
  double host_first_p50 = 0;  // of the first tenth of the steps
  double host_last_p50 = 0;   // of the last
  double step_p50 = 0;        // with waiting
  double allocations = 0;     // per step
  std::optional<LaunchCosts> launches;
};

inline constexpr int kMostOverheadRows = 10'752;

Result<Overhead> MeasureOverhead(const OverheadOptions& options, int rows);

}  // namespace spry
