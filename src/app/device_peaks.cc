#include "app/device_peaks.h"

#include <algorithm>
#include <string_view>

#include "device/cpu/machine_speed.h"

namespace spry {
namespace {

// What such weights are multiplied as: int8 activations meet quantised ones.
std::string_view FactorType(DType weight, const CpuFeatures& features) {
  if (IsQuantized(weight)) return "int8";
  return weight == DType::kBF16 && features.avx512_bf16 ? "bfloat16" : "float32";
}

CpuFeatures FeaturesOf(CpuIsa isa) {
  const CpuFeatures features = DetectCpuFeatures();
  return isa == CpuIsa::kAuto || isa == CpuIsa::kAvx512 ? features
                                                        : CpuFeatures{.avx2 = features.avx2};
}

}  // namespace

Result<DevicePeaks> PeaksOf(const Device& device, const DeviceFlags& flags, DType weight) {
  if (device.name() != "cpu") {
    const DeviceInfo info = device.info();
    return DevicePeaks{.gb_per_s = info.peak_gb_per_s, .tflops = info.peak_tflops};
  }
  const CpuFeatures features = FeaturesOf(flags.cpu.isa);
  const int threads = flags.cpu.threads > 0 ? flags.cpu.threads : DefaultCpuThreads();
  SPRY_ASSIGN_OR_RETURN(const MachineSpeed speed, MeasureMachine(threads, features));
  DevicePeaks peaks{.gb_per_s = speed.reads.back().all_gb_per_s};
  for (const ProductSpeed& product : speed.products) {
    if (product.type == FactorType(weight, features)) {
      peaks.tflops = std::max(peaks.tflops, product.all_tops);
    }
  }
  return peaks;
}

}  // namespace spry
