#include "tests/tidy/headers.h"

#include <algorithm>
#include <string_view>

namespace spry::tidy {

std::vector<Finding> CheckHeaders(const std::vector<SourceFile>& files) {
  std::vector<Finding> findings;
  for (const SourceFile& file : files) {
    if (!HasSuffix(file.path, {".h", ".cuh"})) continue;
    if (!file.text.starts_with("// ")) {
      findings.push_back({file.path, 1, "a header opens with a comment that says what it is for"});
    }
    if (std::ranges::count(Lines(file.text), std::string_view("#pragma once")) != 1) {
      findings.push_back({file.path, 1, "a header has one #pragma once"});
    }
  }
  return findings;
}

}  // namespace spry::tidy
