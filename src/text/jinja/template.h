// A chat template's language: Jinja as jinja2 3.1 has it, in a sandbox. Only what other templates
// would be needed for is left out. Immutable; any number of threads may render one.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/jinja/syntax.h"
#include "text/jinja/value.h"

namespace spry::jinja {

class Template {
 public:
  // Broken UTF-8 counts as U+FFFD. Errors: "chat template, line 3: found ..., expected ...".
  static Result<Template> Parse(std::string_view source);

  // `now` is what strftime_now shows. Errors name the line; those at a limit name it (limits.h).
  Result<std::string> Render(const Dict& variables, const std::tm& now) const;

 private:
  explicit Template(Block block) : block_(std::move(block)) {}
  Block block_;
};

}  // namespace spry::jinja
