#include "device/cpu/kv_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace spry {
namespace {

constexpr uintptr_t kPageBytes = 4096;
// Every row may need a block before the next ones are touched.
constexpr int32_t kBlocksAheadPerRow = 2;

// Gives [begin, end) memory, and the rest of its first and last page.
void TouchPages(std::byte* begin, std::byte* end) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / kPageBytes * kPageBytes;
  const uintptr_t last = reinterpret_cast<uintptr_t>(end);
  if (madvise(reinterpret_cast<void*>(first), last - first, MADV_POPULATE_WRITE) == 0) return;
  // Linux before 5.14.
  for (uintptr_t at = first; at < last; at += kPageBytes) {
    volatile std::byte* const page = reinterpret_cast<std::byte*>(at);
    *page = *page;
  }
}

}  // namespace

Result<KvMemory> KvMemory::Map(std::span<const int64_t> block_bytes, const StepLimits& limits) {
  KvMemory kv;
  kv.num_blocks_ = limits.num_blocks;
  kv.block_size_ = limits.block_size;
  for (const int64_t bytes : block_bytes) {
    SPRY_ASSIGN_OR_RETURN(MemoryRegion memory,
                          MemoryRegion::Map(bytes * limits.num_blocks, PageKind::kNormal));
    kv.layers_.push_back({std::move(memory), bytes});
  }
  return kv;
}

void KvMemory::TouchUsed(const StepSlot& slot) {
  for (int32_t i = 0; i < slot.header->num_block_writes; ++i) {
    used_end_ = std::max(used_end_, slot.block_writes[i].block + 1);
  }
  TouchUntil(used_end_);
}

void KvMemory::TouchAhead(const StepSlot& slot) {
  const int32_t rows = slot.header->num_rows;
  const int32_t wanted = std::min(used_end_ + kBlocksAheadPerRow * rows, num_blocks_);
  // As many as the rows need in the long run.
  const int32_t most = (rows + block_size_ - 1) / block_size_;
  TouchUntil(std::min(touched_end_ + most, wanted));
}

void KvMemory::TouchUntil(int32_t end) {
  if (end <= touched_end_) return;
  for (const Layer& layer : layers_) {
    std::byte* const memory = layer.memory.data();
    TouchPages(memory + touched_end_ * layer.block_bytes, memory + end * layer.block_bytes);
  }
  touched_end_ = end;
}

}  // namespace spry
