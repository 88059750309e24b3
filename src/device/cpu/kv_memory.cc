#include "device/cpu/kv_memory.h"

#include <algorithm>
#include <utility>

namespace spry {
namespace {

constexpr int64_t kPageBytes = 4096;
// Every row may need a block before the next ones are touched.
constexpr int32_t kBlocksAheadPerRow = 2;

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

void KvMemory::TouchAhead(const StepSlot& slot) {
  for (int32_t i = 0; i < slot.header->num_block_writes; ++i) {
    used_end_ = std::max(used_end_, slot.block_writes[i].block + 1);
  }
  touched_end_ = std::max(touched_end_, used_end_);
  const int32_t rows = slot.header->num_rows;
  const int32_t wanted = std::min(used_end_ + kBlocksAheadPerRow * rows, num_blocks_);
  // As many as the rows need in the long run.
  const int32_t most = (rows + block_size_ - 1) / block_size_;
  for (int32_t i = 0; i < most && touched_end_ < wanted; ++i) Touch(touched_end_++);
}

void KvMemory::Touch(int32_t block) {
  for (const Layer& layer : layers_) {
    volatile std::byte* const begin = layer.memory.data() + block * layer.block_bytes;
    for (int64_t at = 0; at < layer.block_bytes; at += kPageBytes) begin[at] = begin[at];
  }
}

}  // namespace spry
