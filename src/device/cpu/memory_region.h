// Memory straight from the system: zeroed, 2 MiB aligned, given back when the region goes. Pages
// take no memory until they are touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace spry {

enum class PageKind {
  kNormal,
  kHuge,  // asks for huge pages; the system may give normal ones
};

class MemoryRegion {
 public:
  MemoryRegion() = default;
  ~MemoryRegion();
  MemoryRegion(MemoryRegion&& other) noexcept;
  MemoryRegion& operator=(MemoryRegion&& other) noexcept;

  // ResourceExhausted when the system refuses.
  static Result<MemoryRegion> Map(int64_t bytes, PageKind pages);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;  // mapped
};

}  // namespace spry
