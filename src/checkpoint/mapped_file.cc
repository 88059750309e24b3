#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace spry {
namespace {

class FileDescriptor {
 public:
  // O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
  explicit FileDescriptor(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status SystemError(const std::filesystem::path& path, const char* action, int error) {
  std::string message =
      fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(error));
  return error == ENOENT ? NotFound(std::move(message)) : InvalidArgument(std::move(message));
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::filesystem::path& path) {
  const FileDescriptor file(path);
  if (file.get() < 0) return SystemError(path, "open", errno);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return SystemError(path, "read its size", errno);
  if (S_ISDIR(info.st_mode)) {
    return InvalidArgument(fmt::format("{}: is a folder, expected a file", path.string()));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(fmt::format("{}: is not a regular file", path.string()));
  }
  if (info.st_size == 0) return InvalidArgument(fmt::format("{}: is empty", path.string()));
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return SystemError(path, "map", errno);
  const std::span bytes(static_cast<const std::byte*>(data), size);
  return std::shared_ptr<const MappedFile>(new MappedFile(path, bytes));
}

MappedFile::MappedFile(std::filesystem::path path, std::span<const std::byte> bytes)
    : path_(std::move(path)), bytes_(bytes) {}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

void MappedFile::GiveBack(size_t offset, size_t size) const {
  CHECK(offset <= bytes_.size() && size <= bytes_.size() - offset);
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t first = (offset + page - 1) / page * page;
  // The rest of the last page belongs to nobody.
  const size_t stop =
      offset + size == bytes_.size() ? offset + size : (offset + size) / page * page;
  if (first >= stop) return;
  ::madvise(const_cast<std::byte*>(bytes_.data()) + first, stop - first, MADV_DONTNEED);
}

std::shared_ptr<const void> PagesOwner(std::shared_ptr<const MappedFile> file, size_t offset,
                                       size_t size) {
  const std::byte* data = file->bytes().data() + offset;
  return std::shared_ptr<const void>(
      data, [file = std::move(file), offset, size](const void*) { file->GiveBack(offset, size); });
}

}  // namespace spry
