// Percentiles as numpy.percentile takes them: linear between the two nearest of the sorted values.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"

namespace spry {

class Percentiles {
 public:
  explicit Percentiles(std::vector<double> values) : sorted_(std::move(values)) {
    CHECK(!sorted_.empty());
    std::ranges::sort(sorted_);
  }

  double At(double percent) const {
    CHECK(percent >= 0.0 && percent <= 100.0);
    const double rank = percent / 100.0 * static_cast<double>(sorted_.size() - 1);
    const size_t below = static_cast<size_t>(rank);
    const size_t above = std::min(below + 1, sorted_.size() - 1);
    return std::lerp(sorted_[below], sorted_[above], rank - static_cast<double>(below));
  }
  size_t size() const { return sorted_.size(); }

 private:
  std::vector<double> sorted_;
};

}  // namespace spry
