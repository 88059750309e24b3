#include "app/write_text.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "app/plain_text.h"

namespace spry {
namespace {

Status CannotWrite(std::string_view name) {
  return InvalidArgument(fmt::format("{} cannot be written: {}", name, std::strerror(errno)));
}

Status Write(std::FILE* file, std::string_view name, std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  return written && std::fflush(file) == 0 ? Status() : CannotWrite(name);
}

}  // namespace

Status WriteStdout(std::string_view text) { return Write(stdout, "stdout", text); }

void WriteStderr(std::string_view text) { (void)Write(stderr, "stderr", text); }

void Complain(std::string_view message) {
  WriteStderr(fmt::format("spry: {}\n", PlainText(message)));
}

Status WriteFile(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return CannotWrite(path);
  Status status = Write(file, path, text);
  if (std::fclose(file) != 0 && status.ok()) status = CannotWrite(path);
  return status;
}

Status CheckWritable(const std::string& path) {
  if (path.empty()) return {};
  std::FILE* file = std::fopen(path.c_str(), "abe");
  if (file == nullptr) return CannotWrite(path);
  std::fclose(file);
  return {};
}

}  // namespace spry
