// Which rule slots (program/rule_slot.h) are free. A free slot may still have its image copied by a
// step in flight; it goes to a new owner once the host may write that image. First freed, first
// given, so the wait is short. Storage is taken once, at construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace spry {

class RuleSlots {
 public:
  explicit RuleSlots(int count) : free_(count), copies_(count) {
    for (int slot = 0; slot < count; ++slot) free_[slot] = slot;
    num_free_ = count;
  }

  int size() const { return static_cast<int>(free_.size()); }
  int num_free() const { return num_free_; }
  int free(int i) const { return free_[Index(i)]; }  // the i-th to be given

  // Whether Take has a slot, when so many steps have been committed.
  bool CanTake(uint64_t num_committed) const {
    return num_free_ > 0 && copies_[free_[oldest_]] <= num_committed;
  }
  int Take() {
    CHECK(num_free_ > 0);
    const int slot = free_[oldest_];
    oldest_ = Index(1);
    --num_free_;
    return slot;
  }
  // Step `step`, counted from 0, copies the slot's image.
  void NoteCopy(int slot, uint64_t step) { copies_[slot] = step + 1; }
  void Release(int slot) {
    CHECK(num_free_ < size());
    free_[Index(num_free_++)] = slot;
  }

 private:
  int Index(int i) const { return (oldest_ + i) % size(); }

  std::vector<int> free_;  // a ring
  int oldest_ = 0;
  int num_free_ = 0;
  std::vector<uint64_t> copies_;  // by slot: 1 + the last step that copies its image; 0: none
};

}  // namespace spry
