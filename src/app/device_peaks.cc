#include "app/device_peaks.h"

#include <algorithm>

#include "device/cpu/machine_speed.h"

namespace spry {
namespace {

CpuFeatures FeaturesOf(CpuIsa isa) {
  CpuFeatures features = DetectCpuFeatures();
  if (isa == CpuIsa::kReference || isa == CpuIsa::kAvx2) return {.avx2 = features.avx2};
  if (isa == CpuIsa::kAvx512) features.amx = false;
  return features;
}

}  // namespace

Result<DevicePeaks> PeaksOf(const Device& device, const DeviceFlags& flags) {
  if (device.name() != "cpu") {
    const DeviceInfo info = device.info();
    return DevicePeaks{.gb_per_s = info.peak_gb_per_s,
                       .f32_tflops = info.peak_tflops,
                       .bf16_tflops = info.peak_tflops,
                       .int8_tflops = info.peak_tflops};
  }
  // Threads that share a core have no peak beyond the core's.
  const int threads = std::min(ThreadsOrDefault(flags.cpu.threads), UsableCores());
  const CpuFeatures features = FeaturesOf(flags.cpu.isa);
  SPRY_ASSIGN_OR_RETURN(const MachineSpeed speed, MeasureMachine(threads, features));
  DevicePeaks peaks{.gb_per_s = speed.reads.back().all_gb_per_s, .attends_in_bf16 = features.amx};
  for (const ProductSpeed& product : speed.products) {
    double& peak = product.type == "int8"       ? peaks.int8_tflops
                   : product.type == "bfloat16" ? peaks.bf16_tflops
                                                : peaks.f32_tflops;
    peak = std::max(peak, product.all_tops);
  }
  // Without instructions for pairs of bf16 they are widened.
  peaks.bf16_tflops = std::max(peaks.bf16_tflops, peaks.f32_tflops);
  return peaks;
}

}  // namespace spry
