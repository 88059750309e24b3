#include "checkpoint/zip_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "checkpoint/printable.h"

namespace spry {
namespace {

// Layouts: PKWARE's APPNOTE 6.3, sections 4.3.7 (local header), 4.3.12 (central directory), 4.3.14
// to 4.3.16 (zip64 end record, its locator, end record), 4.5.3 (zip64 sizes). Little-endian.
constexpr uint32_t kLocalMagic = 0x04034b50;
constexpr uint32_t kCentralMagic = 0x02014b50;
constexpr uint32_t kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50;
constexpr uint32_t kLocator64Magic = 0x07064b50;
constexpr uint64_t kLocalBytes = 30;
constexpr uint64_t kCentralBytes = 46;
constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint64_t kMaxCommentBytes = 0xffff;
constexpr uint16_t kSizes64 = 1;  // the extra field with what does not fit 32 bits
constexpr uint32_t kIn64 = 0xffffffff;
constexpr uint16_t kEncrypted = 1;

struct Directory {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

class ZipReader {
 public:
  explicit ZipReader(const MappedFile& file)
      : path_(file.path().string()), bytes_(file.bytes()), size_(file.bytes().size()) {}

  Result<std::vector<ZipEntry>> Read() const {
    SPRY_ASSIGN_OR_RETURN(const Directory directory, FindDirectory());
    std::vector<ZipEntry> entries;
    entries.reserve(directory.entries);
    uint64_t at = directory.offset;
    const uint64_t end = directory.offset + directory.bytes;
    for (uint64_t i = 0; i < directory.entries; ++i) {
      if (end - at < kCentralBytes || Number<uint32_t>(at) != kCentralMagic) {
        return Error(at, fmt::format("entry {} of the zip directory is damaged", i));
      }
      const uint64_t bytes = kCentralBytes + Number<uint16_t>(at + 28) + Number<uint16_t>(at + 30) +
                             Number<uint16_t>(at + 32);
      if (bytes > end - at) {
        return Error(at, fmt::format("entry {} of the zip directory reaches past its end", i));
      }
      SPRY_ASSIGN_OR_RETURN(const ZipEntry entry, ReadEntry(at, directory.offset));
      entries.push_back(entry);
      at += bytes;
    }
    std::ranges::sort(entries, {}, &ZipEntry::name);
    const auto twice = std::ranges::adjacent_find(entries, {}, &ZipEntry::name);
    if (twice == entries.end()) return entries;
    return Error(twice->offset, fmt::format("zip entry {} is there twice", Printable(twice->name)));
  }

 private:
  Status Error(uint64_t at, std::string_view problem) const {
    return InvalidArgument(fmt::format("{}: byte {}: {}", path_, at, problem));
  }

  // The caller has checked that it is inside the file.
  template <typename T>
  T Number(uint64_t at) const {
    CHECK(at + sizeof(T) <= size_);
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }

  std::string_view Text(uint64_t at, uint64_t bytes) const {
    return {reinterpret_cast<const char*>(bytes_.data()) + at, bytes};
  }

  // The end record is the last thing in the file but for a comment, whose length it states.
  Result<uint64_t> FindEnd() const {
    for (uint64_t back = kEndBytes; back <= kEndBytes + kMaxCommentBytes && back <= size_; ++back) {
      const uint64_t at = size_ - back;
      if (Number<uint32_t>(at) == kEndMagic && Number<uint16_t>(at + 20) == back - kEndBytes) {
        return at;
      }
    }
    return Error(size_, "the file ends without a zip end record; it is cut short or no zip file");
  }

  Result<Directory> FindDirectory() const {
    SPRY_ASSIGN_OR_RETURN(uint64_t end, FindEnd());
    const bool one_disk = Number<uint16_t>(end + 4) == 0 && Number<uint16_t>(end + 6) == 0;
    Directory directory = {.offset = Number<uint32_t>(end + 16),
                           .bytes = Number<uint32_t>(end + 12),
                           .entries = Number<uint16_t>(end + 10)};
    if (end >= kLocator64Bytes && Number<uint32_t>(end - kLocator64Bytes) == kLocator64Magic) {
      const uint64_t locator = end - kLocator64Bytes;
      end = Number<uint64_t>(locator + 8);
      if (locator < kEnd64Bytes || end > locator - kEnd64Bytes ||
          Number<uint32_t>(end) != kEnd64Magic) {
        return Error(locator, fmt::format("the zip64 end record is not at byte {}", end));
      }
      directory = {.offset = Number<uint64_t>(end + 48),
                   .bytes = Number<uint64_t>(end + 40),
                   .entries = Number<uint64_t>(end + 32)};
    }
    if (!one_disk) return Error(end, "the zip file is in several parts");
    if (directory.offset > end || directory.bytes > end - directory.offset ||
        directory.entries > directory.bytes / kCentralBytes) {
      return Error(end, fmt::format("a zip directory of {} entries in {} bytes at byte {} does not "
                                    "fit before its end record",
                                    directory.entries, directory.bytes, directory.offset));
    }
    return directory;
  }

  // `at` is a whole entry of the directory; data lies before `data_end`.
  Result<ZipEntry> ReadEntry(uint64_t at, uint64_t data_end) const {
    const uint16_t name_bytes = Number<uint16_t>(at + 28);
    const std::string_view name = Text(at + kCentralBytes, name_bytes);
    const auto wrong = [&](std::string_view problem) {
      return Error(at, fmt::format("zip entry {} {}", Printable(name), problem));
    };
    if ((Number<uint16_t>(at + 8) & kEncrypted) != 0) return wrong("is encrypted");
    if (const uint16_t method = Number<uint16_t>(at + 10); method != 0) {
      return wrong(fmt::format("is compressed (method {}), supported: stored, as torch.save writes",
                               method));
    }
    uint64_t bytes = Number<uint32_t>(at + 24), packed = Number<uint32_t>(at + 20);
    uint64_t local = Number<uint32_t>(at + 42);
    if (!ReadSizes64(at + kCentralBytes + name_bytes, Number<uint16_t>(at + 30),
                     {&bytes, &packed, &local})) {
      return wrong("lacks its zip64 sizes");
    }
    if (bytes != packed) return wrong(fmt::format("has sizes {} and {}", bytes, packed));
    if (data_end < kLocalBytes || local > data_end - kLocalBytes ||
        Number<uint32_t>(local) != kLocalMagic) {
      return wrong(fmt::format("has no header at byte {}", local));
    }
    const uint64_t names = kLocalBytes + Number<uint16_t>(local + 26);
    const uint64_t data = local + names + Number<uint16_t>(local + 28);
    if (data > data_end || bytes > data_end - data) {
      return wrong(fmt::format("claims {} bytes at byte {}, but the data ends at byte {}", bytes,
                               data, data_end));
    }
    if (Text(local + kLocalBytes, names - kLocalBytes) != name) {
      return wrong(fmt::format("has another name at byte {}", local));
    }
    return ZipEntry{.name = name, .offset = data, .bytes = bytes};
  }

  // Replaces each number that says so by the next one of the extra field for large files.
  bool ReadSizes64(uint64_t extra, uint64_t extra_bytes,
                   std::initializer_list<uint64_t*> numbers) const {
    uint64_t at = extra, left = 0;
    for (const uint64_t end = extra + extra_bytes; end - at >= 4; at += 4 + left) {
      left = Number<uint16_t>(at + 2);
      if (left > end - at - 4) return false;
      if (Number<uint16_t>(at) == kSizes64) break;
    }
    const bool found = extra + extra_bytes - at >= 4;
    at += 4;
    for (uint64_t* number : numbers) {
      if (*number != kIn64) continue;
      if (!found || left < sizeof(uint64_t)) return false;
      *number = Number<uint64_t>(at);
      at += sizeof(uint64_t);
      left -= sizeof(uint64_t);
    }
    return true;
  }

  std::string path_;
  std::span<const std::byte> bytes_;
  uint64_t size_ = 0;
};

}  // namespace

Result<std::vector<ZipEntry>> ReadZip(const MappedFile& file) { return ZipReader(file).Read(); }

}  // namespace spry
