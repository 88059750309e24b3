// The sizes of a tensor, outermost first, at most four. Sizes are whatever a file says until
// somebody has checked them: elements() refuses products that do not fit.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "base/check.h"

namespace spry {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    CHECK(rank_ <= kMaxRank);
    for (int i = 0; i < rank_; ++i) dims_[i] = dims[i];
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const {
    CHECK(i >= 0 && i < rank_);
    return dims_[i];
  }

  // The number of elements; nothing when a size is negative or the product overflows.
  std::optional<int64_t> elements() const;
  std::string ToString() const;  // "[49152, 576]"

  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_ = {};
  int rank_ = 0;
};

}  // namespace spry
