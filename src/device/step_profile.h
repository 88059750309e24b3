// When the ops of steps ran, on a device that runs them one after another on the host. Its memory
// is there beforehand, so that recording allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spry {

struct ProfiledStep {
  int32_t tokens = 0;   // T
  int32_t samples = 0;  // L
  // What attention has to do: positions that tokens look at, summed over tokens, and positions that
  // must be read for it, summed over rows.
  int64_t seen_positions = 0;
  int64_t read_positions = 0;
  int64_t begin_ns = 0;            // of the steady clock
  std::vector<int64_t> op_end_ns;  // by index in Program::ops; an op begins where another ends
};

class StepProfile {
 public:
  StepProfile(size_t num_ops, size_t max_steps) : steps_(max_steps) {
    for (ProfiledStep& step : steps_) step.op_end_ns.resize(num_ops);
  }

  // For a step to come; null: full.
  ProfiledStep* Next() { return used_ == steps_.size() ? nullptr : &steps_[used_++]; }
  std::span<const ProfiledStep> steps() const { return {steps_.data(), used_}; }

 private:
  std::vector<ProfiledStep> steps_;
  size_t used_ = 0;
};

}  // namespace spry
