// Replacing one text by another.
#pragma once

#include <string>
#include <string_view>

namespace spry {

// `text` with `to` for each `from` (not empty), from left to right, never within what was put in.
inline std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string replaced;
  size_t done = 0;
  for (size_t at = text.find(from); at != std::string_view::npos; at = text.find(from, done)) {
    replaced.append(text.substr(done, at - done)).append(to);
    done = at + from.size();
  }
  return replaced.append(text.substr(done));
}

}  // namespace spry
