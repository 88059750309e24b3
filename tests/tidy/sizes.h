// Caps on files, functions and lines. There are no exceptions to them: what grows past a cap is
// split.
#pragma once

#include <vector>

#include "tests/tidy/source_tree.h"

namespace spry::tidy {

inline constexpr int kMaxColumns = 100;
inline constexpr int kMaxFileLines = 500;
inline constexpr int kMaxFunctionLines = 70;
// Kernels: src/device/cpu's folders of one instruction set, and all CUDA sources.
inline constexpr int kMaxKernelFileLines = 700;
inline constexpr int kMaxKernelFunctionLines = 120;
// A model is one screen.
inline constexpr int kMaxModelFileLines = 120;

std::vector<Finding> CheckSizes(const std::vector<SourceFile>& files);

}  // namespace spry::tidy
