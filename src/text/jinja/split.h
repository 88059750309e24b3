// Cutting and replacing in texts, as Python's str does it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/characters.h"
#include "text/jinja/runtime.h"

namespace spry::jinja {

struct SplitOptions {
  std::optional<std::string_view> separator;  // not empty; none: runs of white space
  int64_t most = -1;                          // cuts; negative: as many as there are
  bool from_right = false;
};
Result<std::vector<std::string_view>> SplitText(Runtime& runtime, std::string_view text,
                                                const SplitOptions& options);

// `text` without the white space, or the characters of `set`, at its sides.
Result<std::string> StripText(Runtime& runtime, std::string_view text, Sides sides,
                              std::optional<std::string_view> set);

// Every `from`, or the first `most` of them when that is not negative, becomes `to`. An empty
// `from` is found around every character.
Result<std::string> ReplaceText(Runtime& runtime, std::string_view text, std::string_view from,
                                std::string_view to, int64_t most);

}  // namespace spry::jinja
