// The project's own text as the tidy tests see it, and what they report about it. Checkers take
// files as plain data, so that a test can hand them a small bad tree and see that they find the
// fault.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace spry::tidy {

struct SourceFile {
  std::string path;  // from the project's root, with '/'
  std::string text;
};

struct Finding {
  std::string path;
  int line = 0;  // from 1
  std::string rule;

  bool operator==(const Finding&) const = default;
};

// Every file of this source tree but what .gitignore names, sorted by path; the text of one that
// holds a NUL byte (a checkpoint among the goldens) is left empty. Read once.
const std::vector<SourceFile>& ThisTree();

// The lines of a text, without their ends.
std::vector<std::string_view> Lines(std::string_view text);

bool HasSuffix(std::string_view path, std::initializer_list<std::string_view> suffixes);
bool IsCpp(std::string_view path);
// Code that people write by hand in any language: C++, Python, shell, CMake.
bool IsCode(std::string_view path);

// One "path:line: rule" a line, as compilers print it; empty when there is nothing to report.
std::string Listed(const std::vector<Finding>& findings);

}  // namespace spry::tidy
