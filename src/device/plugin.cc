#include "device/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "device/plugin_file.h"

namespace spry {

Result<std::unique_ptr<Device>> LoadDevicePlugin(const std::string& library,
                                                 const std::vector<std::filesystem::path>& folders,
                                                 const PluginOptions& options) {
  for (const std::filesystem::path& folder : folders) {
    const std::filesystem::path path = folder / library;
    std::error_code ignored;
    if (!std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) continue;
    SPRY_RETURN_IF_ERROR(CheckPluginFile(path));
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return Unavailable(fmt::format("cannot load {}", dlerror()));
    const auto entry = reinterpret_cast<PluginEntry>(dlsym(handle, kPluginEntry));
    if (entry == nullptr) {
      return InvalidArgument(
          fmt::format("{} is not a device plug-in: it has no {}; build it with SPRY_CUDA=ON",
                      path.string(), kPluginEntry));
    }
    std::string error;
    std::unique_ptr<Device> device(entry(kPluginAbi, &options, &error));
    if (device == nullptr) return Unavailable(fmt::format("{}: {}", path.string(), error));
    return device;
  }
  return NotFound(
      fmt::format("{} was not found in {}, where the program is; build it with SPRY_CUDA=ON",
                  library, folders.front().string()));
}

}  // namespace spry
