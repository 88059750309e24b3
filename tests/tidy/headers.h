// What every header has. That each compiles alone is the target headers_compile beside this file.
#pragma once

#include <vector>

#include "tests/tidy/source_tree.h"

namespace spry::tidy {

// A header opens with a comment that says what it is for, and is guarded by #pragma once.
std::vector<Finding> CheckHeaders(const std::vector<SourceFile>& files);

}  // namespace spry::tidy
