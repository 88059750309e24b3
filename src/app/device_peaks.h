// The most that a device can do, for the share that benchmarks print: a card's nominal figures, or
// what the CPU was measured to do (device/cpu/machine_speed.h).
#pragma once

#include "app/flags.h"
#include "base/status.h"
#include "device/device.h"
#include "tensor/dtype.h"

namespace spry {

struct DevicePeaks {
  double gb_per_s = 0;  // of memory; 0: not known
  double tflops = 0;    // of products with weights of that type; 0: not known
};

// Measures for a few seconds where `device` is the CPU.
Result<DevicePeaks> PeaksOf(const Device& device, const DeviceFlags& flags, DType weight);

}  // namespace spry
