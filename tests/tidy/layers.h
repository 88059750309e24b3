// The order of src/'s folders, as the includes keep it.
#pragma once

#include <vector>

#include "tests/tidy/source_tree.h"

namespace spry::tidy {

// A folder includes only folders of lower number. Inside device/, a device's folder includes
// device/ itself and its own files, never another device.
std::vector<Finding> CheckLayers(const std::vector<SourceFile>& files);

// Nothing that a .cu or .cuh file reaches includes fmt or spdlog: both break under nvcc in C++20.
std::vector<Finding> CheckCudaReach(const std::vector<SourceFile>& files);

}  // namespace spry::tidy
