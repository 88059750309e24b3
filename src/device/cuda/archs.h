// Which cards the plug-in was compiled for.
#pragma once

#include <string_view>

namespace spry::cuda {

// archs: as CMAKE_CUDA_ARCHITECTURES, with ',' or ';' between them. "80-real": code for compute
// capability 8.0 and later minor versions; "90a-real": for 9.0 alone; "80-virtual": what the driver
// compiles for 8.0 and anything later; "80": both. A word, as "all", is taken to fit.
bool HasCodeFor(std::string_view archs, int major, int minor);

}  // namespace spry::cuda
