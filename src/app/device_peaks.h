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
  // Products, in 1e12 operations a second, by what is multiplied; 0: not known.
  double f32_tflops = 0;
  double bf16_tflops = 0;
  double int8_tflops = 0;
  bool attends_in_bf16 = false;  // over a cache of it; else in f32

  // int8 activations meet quantised weights.
  double TflopsFor(DType weight) const {
    if (IsQuantized(weight)) return int8_tflops;
    return weight == DType::kBF16 ? bf16_tflops : f32_tflops;
  }
  double AttentionTflops(DType kv) const {
    return attends_in_bf16 && kv == DType::kBF16 ? bf16_tflops : f32_tflops;
  }
};

// Measures for a few seconds where `device` is the CPU.
Result<DevicePeaks> PeaksOf(const Device& device, const DeviceFlags& flags);

}  // namespace spry
