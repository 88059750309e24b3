#include <algorithm>

#include <fmt/format.h>

#include "kv/block_pool.h"

namespace spry {

Status BlockPool::CheckIntegrity() const {
  SPRY_RETURN_IF_ERROR(CheckFreeList());
  return CheckIndex();
}

Status BlockPool::CheckFreeList() const {
  std::vector<bool> listed(blocks_.size());
  int num_listed = 0;
  int32_t previous = kNone;
  for (int32_t block = free_head_; block != kNone; block = blocks_[block].next) {
    const Block& b = blocks_[block];
    if (listed[block]) return Internal(fmt::format("block {} is on the free list twice", block));
    if (b.references != 0) {
      return Internal(fmt::format("free block {} has {} references", block, b.references));
    }
    if (b.previous != previous) {
      return Internal(fmt::format("free block {} points back to {}, its neighbour is {}", block,
                                  b.previous, previous));
    }
    listed[block] = true;
    ++num_listed;
    previous = block;
  }
  if (free_tail_ != previous) {
    return Internal(
        fmt::format("the free list ends at block {}, its tail is {}", previous, free_tail_));
  }
  if (num_listed != num_free_) {
    return Internal(
        fmt::format("{} blocks are on the free list, {} are counted", num_listed, num_free_));
  }
  for (int32_t block = 0; block < num_blocks(); ++block) {
    if (blocks_[block].references < 0 || (blocks_[block].references == 0 && !listed[block])) {
      return Internal(fmt::format("block {} has {} references and is not on the free list", block,
                                  blocks_[block].references));
    }
  }
  return {};
}

Status BlockPool::CheckIndex() const {
  int num_published = 0;
  for (int32_t block = 0; block < num_blocks(); ++block) {
    const Block& b = blocks_[block];
    if (!b.published) continue;
    ++num_published;
    if (Find(b.hash, TokensOf(block)) != BlockId(block)) {
      return Internal(fmt::format("published block {} is not found by its hash", block));
    }
  }
  if (num_published != num_published_) {
    return Internal(
        fmt::format("{} blocks are published, {} are counted", num_published, num_published_));
  }
  // Every published block was found at a slot of its own, so equal counts leave no stray entry.
  const auto entries = std::ranges::count_if(index_, [](int32_t entry) { return entry != kNone; });
  if (entries != num_published) {
    return Internal(
        fmt::format("the index has {} entries for {} published blocks", entries, num_published));
  }
  return {};
}

}  // namespace spry
