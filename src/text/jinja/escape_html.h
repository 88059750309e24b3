// The characters that mean something in HTML, written out: what |escape does, and + with text that
// is marked safe.
#pragma once

#include <string>
#include <string_view>

namespace spry::jinja {

inline std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace spry::jinja
