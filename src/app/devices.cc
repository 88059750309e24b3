#include "app/devices.h"

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "app/serve_log.h"
#include "base/clock.h"
#include "device/cpu/cpu_device.h"
#include "device/null/null_device.h"
#include "device/plugin.h"

namespace spry {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCudaPlugin = "libspry_cuda.so";
const SteadyClock kClock;  // the null device's; it has no state

Result<std::unique_ptr<Device>> MakeCudaDevice(const DeviceFlags& flags) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (error) return Internal("the program's own folder is not known: " + error.message());
  return LoadDevicePlugin(kCudaPlugin, {folder, folder / "../lib/spry"}, {.graphs = flags.graphs});
}

std::unique_ptr<Device> PacedNullDevice(const DeviceFlags& flags) {
  return MakeNullDevice({.step_nanos = flags.null_step_us * 1000, .clock = &kClock});
}

// None and auto mean the same everywhere; a wish for graphs is not to be ignored.
Status CheckGraphs(const Device& device, const GraphOptions& graphs) {
  const bool wants_graphs = graphs.mode == GraphMode::kPiecewise || graphs.mode == GraphMode::kFull;
  if (device.name() == "cuda" || !wants_graphs) return {};
  return InvalidArgument(
      fmt::format("--graph-mode {} needs --device cuda; the {} device has no "
                  "graphs",
                  graphs.mode == GraphMode::kFull ? "full" : "piecewise", device.name()));
}

Result<std::unique_ptr<Device>> FindDevice(const DeviceFlags& flags) {
  switch (flags.device) {
    case DeviceChoice::kNull: return PacedNullDevice(flags);
    case DeviceChoice::kCpu: return MakeCpuDevice(flags.cpu);
    case DeviceChoice::kCuda:
    case DeviceChoice::kAuto: break;
  }
  Result<std::unique_ptr<Device>> cuda = MakeCudaDevice(flags);
  if (cuda.ok()) return cuda;
  if (flags.device == DeviceChoice::kCuda) {
    return Status(cuda.status().code(),
                  cuda.status().message() + "; without --device the CPU computes");
  }
  // Who has the plug-in wants to know why it is not used.
  if (cuda.status().code() != StatusCode::kNotFound) {
    Log(LogLevel::kWarning, "computing on the CPU, since cuda cannot be used",
        {{"reason", cuda.status().message()}});
  }
  return MakeCpuDevice(flags.cpu);
}

// Threads that take turns on a core wait for one another at every op.
void WarnOfThreads(int threads) {
  if (threads == 0) return;  // as many as there are
  const int cores = UsableCores();
  if (threads <= cores) return;
  Log(LogLevel::kWarning, "--threads is more than the cores that this process may use",
      {{"threads", std::to_string(threads)}, {"cores", std::to_string(cores)}});
}

}  // namespace

Result<std::unique_ptr<Device>> OpenDevice(const DeviceFlags& flags) {
  if (!flags.graphs.splitting_ops.empty() && flags.graphs.mode != GraphMode::kPiecewise) {
    return InvalidArgument("--splitting-ops is for --graph-mode piecewise");
  }
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, FindDevice(flags));
  SPRY_RETURN_IF_ERROR(CheckGraphs(*device, flags.graphs));
  if (device->name() == "cpu") WarnOfThreads(flags.cpu.threads);
  return device;
}

std::vector<DeviceListing> ListDevices(const DeviceFlags& flags) {
  std::vector<DeviceListing> devices;
  devices.push_back({"cuda", MakeCudaDevice(flags)});
  devices.push_back({"cpu", MakeCpuDevice(flags.cpu)});
  devices.push_back({"null", PacedNullDevice(flags)});
  return devices;
}

}  // namespace spry
