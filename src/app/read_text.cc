#include "app/read_text.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace spry {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

Status TooLarge(const std::string& name) {
  return InvalidArgument(fmt::format("{} is larger than {} bytes", name, kMaxFileBytes));
}

}  // namespace

Result<std::string> ReadText(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  while (const size_t count = std::fread(buffer, 1, sizeof(buffer), file)) {
    text.append(buffer, count);
    if (text.size() > kMaxFileBytes) {
      return TooLarge(name);
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
  // A file whose size is known need not be read to be refused.
  struct stat status;
  if (fstat(fileno(file.get()), &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_size > static_cast<int64_t>(kMaxFileBytes)) {
    return TooLarge(path);
  }
  return ReadText(file.get(), path);
}

}  // namespace spry
