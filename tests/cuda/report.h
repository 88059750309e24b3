// What a check found, printed as it goes: one line a check, a summary last.
#pragma once

#include <string>
#include <vector>

namespace spry::testing {

class Report {
 public:
  // One check. `detail` says what was compared or what differed.
  void Expect(bool passed, const std::string& name, const std::string& detail);
  // A figure that passes or fails nothing.
  void Figure(const std::string& name, const std::string& value);

  // Prints the summary; true when nothing failed.
  bool Finish() const;

 private:
  int passed_ = 0;
  std::vector<std::string> failed_;
};

}  // namespace spry::testing
