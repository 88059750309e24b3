#include "tensor/shape.h"

namespace spry {

std::optional<int64_t> Shape::elements() const {
  int64_t product = 1;
  for (int i = 0; i < rank_; ++i) {
    if (dims_[i] < 0 || __builtin_mul_overflow(product, dims_[i], &product)) return std::nullopt;
  }
  return product;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[i]);
  }
  return text + "]";
}

}  // namespace spry
