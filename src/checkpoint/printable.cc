#include "checkpoint/printable.h"

#include <fmt/format.h>

namespace spry {
namespace {
constexpr size_t kLongestName = 120;  // bytes of a name that a message repeats
}  // namespace

std::string Printable(std::string_view name) {
  std::string text = "'";
  for (const char c : name.substr(0, kLongestName)) {
    if (c >= 0x20 && c < 0x7f) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return text + (name.size() > kLongestName ? "...'" : "'");
}

}  // namespace spry
