// A device that computes nothing: rows, block tables, limits and results work as everywhere, a
// sampled token is a function of the token fed and its position. What remains of a step is the
// host's own cost. Its steps can be paced, and held back for tests of run-ahead.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "device/device.h"

namespace spry {

struct NullDeviceOptions {
  int64_t step_nanos =
      0;  // a step's results appear that long after the one before, at the earliest
  const Clock* clock = nullptr;  // needed when step_nanos > 0; must outlive the device
};

std::unique_ptr<Device> MakeNullDevice(const NullDeviceOptions& options);

// What the null device samples after `token` at `position`: never a low id, so that end ids of real
// models stay out of the way.
int32_t NullToken(int32_t token, int32_t position, int32_t vocab_size);

}  // namespace spry
