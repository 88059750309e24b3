// What can be said of a shared library before this process maps it: that kills the process if the
// file is shorter than its headers say, or damaged, and waits for ever at a pipe.
#pragma once

#include <filesystem>

#include "base/status.h"

namespace spry {

// Whether `path` is a whole shared library for this machine, as far as its headers tell, and a
// process that loads it survives.
Status CheckPluginFile(const std::filesystem::path& path);

}  // namespace spry
