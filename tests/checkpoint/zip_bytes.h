// Zip files made entry by entry, so that any field can be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spry {

struct ZipBytesEntry {
  std::string name;
  std::string bytes;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint64_t claimed_bytes = ~uint64_t{0};  // by default what there are
  bool sizes_64 = false;                  // sizes and place in the extra field for large files
};

struct ZipBytes {
  std::vector<ZipBytesEntry> entries;
  bool end_64 = false;
  std::string comment;
  uint16_t disk = 0;
  uint64_t claimed_entries = ~uint64_t{0};

  std::string Bytes() const;
};

}  // namespace spry
