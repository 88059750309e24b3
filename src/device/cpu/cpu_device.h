// The CPU as a device: the embedded default. Kernels are chosen once, from the instruction sets
// that the machine has; activations are f32, weights and KV are what was asked for.
#pragma once

#include <memory>

#include "base/status.h"
#include "device/device.h"

namespace spry {

inline constexpr int kMaxThreads = 1024;

enum class CpuIsa { kAuto, kReference, kAvx2, kAvx512, kAmx };

struct CpuDeviceOptions {
  int threads = 0;  // 0: all usable cores
  CpuIsa isa = CpuIsa::kAuto;
};

// The physical cores that affinity and cgroup allow, at least 1.
int UsableCores();
// `threads`, or where that is 0 all usable cores.
int ThreadsOrDefault(int threads);

// InvalidArgument when the machine lacks `isa`, naming what is missing.
Result<std::unique_ptr<Device>> MakeCpuDevice(const CpuDeviceOptions& options);

}  // namespace spry
