// Counts how deep the parser has gone, and refuses to go too deep.
#pragma once

#include <fmt/format.h>

#include "base/status.h"
#include "text/jinja/lexer.h"
#include "text/jinja/limits.h"

namespace spry::jinja {

inline Status TooDeep(int line) {
  return ErrorAt(
      line, fmt::format("the template nests deeper than the limit of {}", kMaxTemplateNesting));
}

class Nesting {
 public:
  explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
  ~Nesting() { --depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

  Status Check(int line) const { return depth_ <= kMaxTemplateNesting ? Status() : TooDeep(line); }

 private:
  int& depth_;
};

}  // namespace spry::jinja
