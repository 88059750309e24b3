// The table of contents of a zip file whose entries are stored, not compressed: what torch.save
// writes, zip64 included. Sizes come from the central directory alone, and every range is checked
// against the file. Checksums are not: that would read a whole checkpoint before its time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/mapped_file.h"

namespace spry {

struct ZipEntry {
  std::string_view name;  // in the mapped file
  uint64_t offset = 0;    // of the entry's bytes in the file
  uint64_t bytes = 0;
};

// Sorted by name. Errors: no zip file or a cut one; an entry that is compressed or encrypted, lies
// outside the file, or is there twice; more than one disk.
Result<std::vector<ZipEntry>> ReadZip(const MappedFile& file);

}  // namespace spry
