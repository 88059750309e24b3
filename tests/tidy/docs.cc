#include "tests/tidy/docs.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>

namespace spry::tidy {
namespace {

bool Exists(const std::vector<SourceFile>& files, std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return std::ranges::any_of(files, [&](const SourceFile& file) {
    return file.path == path || file.path.starts_with(path + "/");
  });
}

}  // namespace

std::vector<Finding> CheckPathsInDocs(const std::vector<SourceFile>& files) {
  static const std::regex path(
      "`((src|tests|tools|docs|bench|packaging|python|\\.ci)/[A-Za-z0-9_./-]*)`");
  std::vector<Finding> findings;
  for (const SourceFile& file : files) {
    if (!file.path.ends_with(".md")) continue;
    int line_number = 0;
    for (std::string_view line : Lines(file.text)) {
      ++line_number;
      std::cregex_iterator match(line.data(), line.data() + line.size(), path);
      for (; match != std::cregex_iterator(); ++match) {
        if (Exists(files, (*match)[1].str())) continue;
        findings.push_back(
            {file.path, line_number, fmt::format("there is no {}", (*match)[1].str())});
      }
    }
  }
  return findings;
}

}  // namespace spry::tidy
