#include "app/read_text.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace spry {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

Result<std::string> ReadText(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), file)) {
    text.append(buffer, count);
    if (text.size() > kMaxFileBytes) {
      return InvalidArgument(fmt::format("{} is larger than {} bytes", name, kMaxFileBytes));
    }
  }
  if (std::ferror(file) != 0) {
    return InvalidArgument(fmt::format("{} cannot be read: {}", name, std::strerror(errno)));
  }
  return text;
}

Result<std::string> ReadTextFile(const std::string& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) {
    return NotFound(fmt::format("{} cannot be opened: {}", path, std::strerror(errno)));
  }
  return ReadText(file.get(), path);
}

}  // namespace spry
