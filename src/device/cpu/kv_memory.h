// The KV blocks of every layer, in memory that the system hands out page by page when it is first
// touched. That costs more than the write itself, most of it for being interrupted page by page; so
// a step's new blocks are asked for at once before it. And as the rows of a batch tend to need
// their next block in the same step, after each step a few of the blocks that will come next are
// touched.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "device/cpu/memory_region.h"
#include "program/step.h"

namespace spry {

class KvMemory {
 public:
  // `block_bytes`: of one block, by layer. ResourceExhausted when the system refuses.
  static Result<KvMemory> Map(std::span<const int64_t> block_bytes, const StepLimits& limits);

  std::byte* layer(LayerIdx layer) const { return layers_[layer.value()].memory.data(); }

  // To be called before a step and after it, with its slot. They change no content.
  void TouchUsed(const StepSlot& slot);
  void TouchAhead(const StepSlot& slot);
  // Blocks [0, touched_end) have their memory.
  int32_t touched_end() const { return touched_end_; }

 private:
  struct Layer {
    MemoryRegion memory;
    int64_t block_bytes = 0;
  };
  void TouchUntil(int32_t end);

  std::vector<Layer> layers_;
  int32_t num_blocks_ = 0;
  int32_t block_size_ = 1;
  int32_t used_end_ = 0;  // one more than the highest block that a row has had
  int32_t touched_end_ = 0;
};

}  // namespace spry
