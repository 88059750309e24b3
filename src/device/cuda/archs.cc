#include "device/cuda/archs.h"

#include <charconv>

namespace spry::cuda {
namespace {

bool Serves(std::string_view arch, int major, int minor) {
  int number = 0;  // 10 * major + minor
  const char* const end = arch.data() + arch.size();
  const auto [rest, error] = std::from_chars(arch.data(), end, number);
  if (error != std::errc()) return true;  // CMake's words: all, all-major, native
  const std::string_view kind(rest, end);
  const bool exact = kind.starts_with('a');
  const bool is_real = !kind.ends_with("-virtual");
  const bool is_virtual = !kind.ends_with("-real");
  const int card = 10 * major + minor;
  if (exact) return card == number;
  return (is_real && number / 10 == major && card >= number) || (is_virtual && card >= number);
}

}  // namespace

bool HasCodeFor(std::string_view archs, int major, int minor) {
  while (!archs.empty()) {
    const size_t end = archs.find_first_of(",;");
    if (Serves(archs.substr(0, end), major, minor)) return true;
    archs.remove_prefix(end == std::string_view::npos ? archs.size() : end + 1);
  }
  return false;
}

}  // namespace spry::cuda
