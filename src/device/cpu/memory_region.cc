#include "device/cpu/memory_region.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace spry {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

}  // namespace

MemoryRegion::~MemoryRegion() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

MemoryRegion::MemoryRegion(MemoryRegion&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryRegion& MemoryRegion::operator=(MemoryRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryRegion MemoryRegion::Map(int64_t bytes, PageKind pages) {
  MemoryRegion region;
  if (bytes < 0 || bytes > (int64_t{1} << 62)) return region;
  bytes = std::max<int64_t>((bytes + kHugePageBytes - 1) / kHugePageBytes, 1) * kHugePageBytes;
  // One huge page more than asked, then the unaligned ends go back.
  const int64_t mapped = bytes + kHugePageBytes;
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return region;
  std::byte* begin = static_cast<std::byte*>(raw);
  const int64_t misaligned = reinterpret_cast<intptr_t>(begin) % kHugePageBytes;
  const int64_t head = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  if (head > 0) munmap(begin, head);
  if (kHugePageBytes - head > 0) munmap(begin + head + bytes, kHugePageBytes - head);
  region.data_ = begin + head;
  region.bytes_ = bytes;
  if (pages == PageKind::kHuge) madvise(region.data_, bytes, MADV_HUGEPAGE);  // a wish, no more
  return region;
}

}  // namespace spry
