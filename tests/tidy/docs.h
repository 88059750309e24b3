// Documents name files; the files are there.
#pragma once

#include <vector>

#include "tests/tidy/source_tree.h"

namespace spry::tidy {

// Each `path/in/backticks` of a Markdown file that begins with one of the project's folders exists.
// A path with a <placeholder> is not looked for.
std::vector<Finding> CheckPathsInDocs(const std::vector<SourceFile>& files);

}  // namespace spry::tidy
