// Devices that come as a shared library of their own, found at run time: one program serves
// machines with and without a card. A plug-in has one C entry; the ABI version covers every struct
// in device.h, program/ and ops/, so program and plug-in must come from the same build.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/device.h"
#include "device/graph_options.h"

namespace spry {

inline constexpr uint32_t kPluginAbi = 5;
inline constexpr const char* kPluginEntry = "spry_make_device";

struct PluginOptions {
  int ordinal = 0;  // which card
  GraphOptions graphs;
};

// The entry's type. Returns null and fills `error` when there is no usable card; the caller owns
// the device. The library stays loaded for the life of the process.
using PluginEntry = Device* (*)(uint32_t abi, const PluginOptions* options, std::string* error);

// Loads `library` (a file name such as "libspry_cuda.so") from the first of `folders` that has it.
// NotFound when no folder has it; Unavailable when it has no usable card.
Result<std::unique_ptr<Device>> LoadDevicePlugin(const std::string& library,
                                                 const std::vector<std::filesystem::path>& folders,
                                                 const PluginOptions& options);

}  // namespace spry
