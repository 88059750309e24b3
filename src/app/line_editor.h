// Lines from a person or a pipe. At a terminal they can be edited, and earlier ones come back with
// the arrow keys (libedit); otherwise they are read as they are, without a prompt.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace spry {

class LineEditor {
 public:
  // Reads stdin. `prompt` is shown at a terminal before each line.
  explicit LineEditor(std::string prompt);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class Outcome {
    kLine,
    kInterrupted,  // by SIGINT: what was typed is dropped
    kEnd,          // of the input (Ctrl-D)
  };
  // The next line without its end. ResourceExhausted beyond kMaxLineBytes.
  Result<Outcome> Read(std::string& line);

  bool at_terminal() const { return terminal_ != nullptr; }

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

inline constexpr size_t kMaxLineBytes = size_t{1} << 20;

}  // namespace spry
