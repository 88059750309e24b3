// Words that the tree does without.
#pragma once

#include <vector>

#include "tests/tidy/source_tree.h"

namespace spry::tidy {

// Marks of unfinished work in code; file names that say nothing; paths of the machine that
// something was written on, and package registries, which belong to whoever runs the build.
std::vector<Finding> CheckWords(const std::vector<SourceFile>& files);

// The environment is read in src/app alone: everything below it is told what to do by its caller.
std::vector<Finding> CheckEnvironment(const std::vector<SourceFile>& files);

}  // namespace spry::tidy
