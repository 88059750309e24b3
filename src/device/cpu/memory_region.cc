#include "device/cpu/memory_region.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace spry {
namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;
constexpr int64_t kMaxBytes = int64_t{1} << 62;  // room for rounding up

Status Refused(int64_t bytes) {
  return ResourceExhausted(
      fmt::format("the system refuses {} bytes of memory; lower --kv-cache-memory-bytes or "
                  "--max-num-seqs, or raise the limit on virtual memory (ulimit -v)",
                  bytes));
}

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

Result<MemoryRegion> MemoryRegion::Map(int64_t wanted_bytes, PageKind pages) {
  if (wanted_bytes < 0 || wanted_bytes > kMaxBytes) return Refused(wanted_bytes);
  const int64_t bytes =
      std::max<int64_t>((wanted_bytes + kHugePageBytes - 1) / kHugePageBytes, 1) * kHugePageBytes;
  // One huge page more than asked, then the unaligned ends go back.
  const int64_t mapped = bytes + kHugePageBytes;
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return Refused(wanted_bytes);
  std::byte* begin = static_cast<std::byte*>(raw);
  const int64_t misaligned = reinterpret_cast<intptr_t>(begin) % kHugePageBytes;
  const int64_t head = misaligned == 0 ? 0 : kHugePageBytes - misaligned;
  if (head > 0) munmap(begin, head);
  if (kHugePageBytes - head > 0) munmap(begin + head + bytes, kHugePageBytes - head);
  MemoryRegion region;
  region.data_ = begin + head;
  region.bytes_ = bytes;
  if (pages == PageKind::kHuge) madvise(region.data_, bytes, MADV_HUGEPAGE);  // a wish, no more
  return region;
}

}  // namespace spry
