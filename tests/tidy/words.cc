#include "tests/tidy/words.h"

#include <fmt/format.h>

#include <regex>
#include <string>
#include <string_view>

#include "tests/tidy/cpp_text.h"

namespace spry::tidy {
namespace {

// Patterns are written in two pieces so that this file does not hold what it looks for.
struct Pattern {
  std::regex regex;
  std::string rule;
  bool code_only;
};

const std::vector<Pattern>& Patterns() {
  static const std::vector<Pattern> patterns = {
      {std::regex("\\b(TO"
                  "DO|FIX"
                  "ME|XX"
                  "X|HA"
                  "CK)\\b"),
       "unfinished work belongs in an issue, not in the code", true},
      {std::regex("(^|[^A-Za-z0-9_.~-])/(wo"
                  "rk|ho"
                  "me/[a-z]|ro"
                  "ot)/"),
       "a path of one machine", false},
      {std::regex("(pypi|pythonhosted|debian|npmjs|crates|pytorch|golang)\\."
                  "(org|io|com)\\b"),
       "a package registry's address; name the package alone", false},
  };
  return patterns;
}

bool NameSaysNothing(const std::string& path) {
  static const std::regex empty_name("(^|[/_-])(utils?|helpers?|common|misc)([._/-]|$)");
  return std::regex_search(path, empty_name);
}

}  // namespace

std::vector<Finding> CheckWords(const std::vector<SourceFile>& files) {
  std::vector<Finding> findings;
  for (const SourceFile& file : files) {
    if (NameSaysNothing(file.path)) {
      findings.push_back({file.path, 1, "a file is named after its one job"});
    }
    // Goldens hold the words of others.
    if (file.path.starts_with("tests/golden/")) continue;
    int line_number = 0;
    for (std::string_view line : Lines(file.text)) {
      ++line_number;
      for (const Pattern& pattern : Patterns()) {
        if (pattern.code_only && !IsCode(file.path)) continue;
        if (std::regex_search(line.begin(), line.end(), pattern.regex)) {
          findings.push_back({file.path, line_number, pattern.rule});
        }
      }
    }
  }
  return findings;
}

std::vector<Finding> CheckEnvironment(const std::vector<SourceFile>& files) {
  static const std::regex reads_environment(R"(\b(secure_)?getenv\b)");
  std::vector<Finding> findings;
  for (const SourceFile& file : files) {
    if (!file.path.starts_with("src/") || file.path.starts_with("src/app/")) continue;
    if (!IsCpp(file.path)) continue;
    const std::string code = Blanked(file.text, Blank::kCommentsAndLiterals);
    int line_number = 0;
    for (std::string_view line : Lines(code)) {
      ++line_number;
      if (std::regex_search(line.begin(), line.end(), reads_environment)) {
        findings.push_back({file.path, line_number, "only src/app reads the environment"});
      }
    }
  }
  return findings;
}

}  // namespace spry::tidy
