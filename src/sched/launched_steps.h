// What was launched and is not yet committed: for each step in flight, oldest first, which request
// each row of its plan stood for. Storage for every step is taken once, at construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/ids.h"

namespace spry {

// The request that a row stood for, named by the row's generation: it may have ended since, and the
// row may have a new owner.
struct LaunchedRow {
  RowId row;
  uint32_t generation = 0;
  int num_samples = 0;
  bool draws = false;
};

class LaunchedSteps {
 public:
  LaunchedSteps(int max_steps, int max_rows) : steps_(max_steps) {
    for (std::vector<LaunchedRow>& step : steps_) step.reserve(max_rows);
  }

  int size() const { return size_; }
  bool full() const { return size_ == static_cast<int>(steps_.size()); }
  // The i-th oldest step.
  const std::vector<LaunchedRow>& operator[](int i) const { return steps_[Index(i)]; }

  // A new newest step, empty, to be filled by the caller.
  std::vector<LaunchedRow>& Push() {
    CHECK(!full());
    std::vector<LaunchedRow>& step = steps_[Index(size_++)];
    step.clear();
    return step;
  }

  void PopOldest() {
    CHECK(size_ > 0);
    oldest_ = Index(1);
    --size_;
  }

 private:
  int Index(int i) const { return (oldest_ + i) % static_cast<int>(steps_.size()); }

  std::vector<std::vector<LaunchedRow>> steps_;
  int oldest_ = 0;
  int size_ = 0;
};

}  // namespace spry
