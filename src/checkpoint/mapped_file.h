// A file mapped read-only. Pages come in when they are touched and can be given back one tensor at
// a time, so that a checkpoint never needs its own size in memory while it is repacked.
// Safe from any thread. A file that somebody cuts short while it is mapped raises SIGBUS on the
// next touch of the lost pages, as for every program that maps it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "base/status.h"

namespace spry {

class MappedFile {
 public:
  // Errors: the file cannot be opened, is no regular file, or is empty.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Drops the pages that lie wholly inside [offset, offset + size) from this process; touching
  // them again reads them again. Pages shared with a neighbour stay.
  void GiveBack(size_t offset, size_t size) const;

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

// Keeps the file mapped; when its last copy goes, the range's pages are given back.
std::shared_ptr<const void> PagesOwner(std::shared_ptr<const MappedFile> file, size_t offset,
                                       size_t size);

}  // namespace spry
