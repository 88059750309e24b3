// The order of every long sum that is not a matrix product: 16 lanes, lane j takes the terms j,
// j + 16, j + 32 ... in ascending order starting from 0, then lanes fold 16 -> 8 -> 4 -> 2 -> 1,
// lane j taking lane j + half. One AVX-512 register, two AVX2 registers or half a warp do the same.
#pragma once

#include <cmath>
#include <cstdint>

namespace spry::reference {

inline constexpr int kLanes = 16;

inline float FoldLanes(float (&lanes)[kLanes]) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

// `add(i, sum)` returns sum plus term i.
template <typename Add>
float SumInLanes(int64_t count, const Add& add) {
  float lanes[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes[j] = add(i + j, lanes[j]);
  }
  for (int64_t i = whole; i < count; ++i) lanes[i - whole] = add(i, lanes[i - whole]);
  return FoldLanes(lanes);
}

}  // namespace spry::reference
