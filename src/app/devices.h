// The explicit list of devices, and which of them a command line means.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/flags.h"
#include "base/status.h"
#include "device/device.h"

namespace spry {

// The device that the flags ask for. Auto takes CUDA when its plug-in and a card are found.
Result<std::unique_ptr<Device>> OpenDevice(const DeviceFlags& flags);

// Every device that spry knows, present or not (then: why), best first.
struct DeviceListing {
  std::string name;
  Result<std::unique_ptr<Device>> device;
};
std::vector<DeviceListing> ListDevices(const DeviceFlags& flags);

}  // namespace spry
