#include "tests/cuda/report.h"

#include <cstdio>

namespace spry::testing {

void Report::Expect(bool passed, const std::string& name, const std::string& detail) {
  std::printf("%s  %s: %s\n", passed ? "pass" : "FAIL", name.c_str(), detail.c_str());
  std::fflush(stdout);
  if (passed) {
    ++passed_;
  } else {
    failed_.push_back(name);
  }
}

void Report::Figure(const std::string& name, const std::string& value) {
  std::printf("      %s: %s\n", name.c_str(), value.c_str());
  std::fflush(stdout);
}

bool Report::Finish() const {
  std::printf("%d passed, %zu failed\n", passed_, failed_.size());
  for (const std::string& name : failed_) std::printf("FAIL  %s\n", name.c_str());
  return failed_.empty();
}

}  // namespace spry::testing
