// The passes of the sample op, written once over a vector type V (vec_*.h).
//
// V adds to the vector interface:
//   Iota(): 0, 1, 2 ...;
//   CountAbove(x, bound), CountEqual(x, y): over all lanes;
//   SelectAbove(x, y, yes, no): integers, by x > y;
//   Compress(x, bound, count, id, ids, values): stores the lanes of the first `count` with
//   x >= bound and their ids, returns how many;
//   Truncate(x): towards zero; AddWide(sums, x): 64-bit lanes; SumWide(sums).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cpu/simd/always_inline.h"
#include "device/cpu/simd/sample_kernels.h"
#include "device/cpu/simd/vec_math.h"

namespace spry {

// Logits from p on, of which `left` are there; -infinity behind them.
template <typename V>
SPRY_INLINE typename V::Float LoadLogits(const float* p, int64_t left) {
  if (left >= V::kLanes) return V::Load(p);
  return V::SelectFirst(left, V::LoadPart(p, left), V::Set(-INFINITY));
}

template <typename V>
LogitScan ScanLogits(const float* logits, int64_t count) {
  using F = typename V::Float;
  using I = typename V::Int;
  constexpr int64_t kRun = 64 * V::kLanes;
  const I magnitude = V::SetInt(0x7fffffff);
  LogitScan scan;
  int64_t best_run = 0;
  I largest_bits = V::SetInt(0);  // a NaN's are above an infinity's
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t end = begin + kRun < count ? begin + kRun : count;
    F largest[2] = {V::Set(-INFINITY), V::Set(-INFINITY)};
    int64_t i = begin;
    for (; i + 2 * V::kLanes <= end; i += 2 * V::kLanes) {
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        const F x = V::Load(logits + i + c * V::kLanes);
        largest[c] = V::Max(x, largest[c]);
        largest_bits = V::MaxInt(largest_bits, V::And(V::AsInt(x), magnitude));
      }
    }
    for (; i < end; i += V::kLanes) {
      const F x = LoadLogits<V>(logits + i, end - i);
      largest[0] = V::Max(x, largest[0]);
      largest_bits = V::MaxInt(largest_bits, V::And(V::AsInt(x), magnitude));
    }
    const float max = V::Largest(V::Max(largest[0], largest[1]));
    if (max > scan.max) {
      scan.max = max;
      best_run = begin;
    }
  }
  scan.has_nan = V::LargestInt(largest_bits) > 0x7f800000;
  for (int64_t i = best_run; i < count; ++i) {
    if (logits[i] != scan.max) continue;
    scan.first = static_cast<int32_t>(i);
    break;
  }
  return scan;
}

template <typename V>
SPRY_INLINE typename V::Int VecMix32(typename V::Int x) {
  x = V::MulInt(V::Xor(x, V::template ShiftRight<16>(x)), V::SetInt(0x21f0aaad));
  x = V::MulInt(V::Xor(x, V::template ShiftRight<15>(x)), V::SetInt(0x735a2d97));
  return V::Xor(x, V::template ShiftRight<15>(x));
}

// -Log(-Log(u)), u as DrawUniform makes it.
template <typename V>
SPRY_INLINE typename V::Float VecGumbel(DrawKey key, typename V::Int ids) {
  using I = typename V::Int;
  const I first = V::SetInt(static_cast<int32_t>(key.first));
  const I second = V::SetInt(static_cast<int32_t>(key.second));
  const I golden = V::SetInt(static_cast<int32_t>(0x9e3779b1u));
  const I bits = VecMix32<V>(V::Xor(VecMix32<V>(V::AddInt(V::MulInt(ids, golden), first)), second));
  const typename V::Float whole = V::ToFloat(V::template ShiftRight<9>(bits));
  const typename V::Float u = V::Mul(V::Add(whole, V::Set(0.5f)), V::Set(0x1p-23f));
  return V::Negate(VecLog<V>(V::Negate(VecLog<V>(u))));
}

// No Gumbel noise is above this: u is at most 1 - 2^-24.
inline constexpr float kLargestGumbel = 16.7f;

// A logit at or below this cannot score `best`.
SPRY_INLINE float HopelessLogit(const DrawSpec& spec, float best) {
  constexpr double kRounding = 1e-6;  // of a score, in all: 2^-24 in each of its operations
  const double least = double{best} - kLargestGumbel;  // of logit / temperature
  const double bound = (least - (least < 0 ? -least : least) * kRounding) * spec.temperature;
  if (!(bound > -3e38)) return -INFINITY;
  // Rounded to a float, and then to the one below.
  const float rounded = static_cast<float>(bound);
  const float step = rounded < 0 ? -rounded : rounded;
  return rounded - step * 2.4e-7f - 1e-37f;
}

// The best score of each lane so far, and its id; ids come to a lane in ascending order.
template <typename V>
struct DrawLanes {
  typename V::Float temperature, best;
  typename V::Int best_ids;
  DrawKey key;

  explicit SPRY_INLINE DrawLanes(const DrawSpec& spec)
      : temperature(V::Set(spec.temperature)),
        best(V::Set(-INFINITY)),
        best_ids(V::SetInt(0)),
        key(spec.key) {}

  SPRY_INLINE void Add(typename V::Float logits, typename V::Int ids) {
    const typename V::Float score = V::Add(V::Div(logits, temperature), VecGumbel<V>(key, ids));
    best_ids = V::SelectAbove(score, best, ids, best_ids);
    best = V::Max(score, best);
  }

  SPRY_INLINE DrawBest Best() const {
    float scores[V::kLanes];
    int32_t ids[V::kLanes];
    V::Store(scores, best);
    V::StoreInt(ids, best_ids);
    DrawBest result;
    for (int j = 0; j < V::kLanes; ++j) {
      const bool first = scores[j] == result.score && ids[j] < result.id;
      if (scores[j] > result.score || first) result = {.id = ids[j], .score = scores[j]};
    }
    return result;
  }
};

template <typename V>
DrawBest DrawListed(const float* logits, const int32_t* ids, int64_t count, const DrawSpec& spec) {
  DrawLanes<V> lanes(spec);
  for (int64_t i = 0; i < count; i += V::kLanes) {
    lanes.Add(LoadLogits<V>(logits + i, count - i), V::LoadInt(ids + i));
  }
  return lanes.Best();
}

// Only ids that are not hopeless reach the lanes, packed, since noise is what costs. Packed by
// runs: a vector read right behind the stores that it consists of would wait for them.
template <typename V>
DrawBest Draw(const float* logits, int64_t count, int32_t first_id, const DrawSpec& spec) {
  constexpr int64_t kRun = 64 * V::kLanes;
  DrawLanes<V> lanes(spec);
  float values[kRun + 2 * V::kLanes];
  int32_t ids[kRun + 2 * V::kLanes];
  int64_t waiting = 0;
  float known = spec.least;
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t end = begin + kRun < count ? begin + kRun : count;
    const typename V::Float hopeless = V::Set(HopelessLogit(spec, known));
    for (int64_t i = begin; i < end; i += V::kLanes) {
      waiting += V::Compress(LoadLogits<V>(logits + i, end - i), hopeless, end - i,
                             first_id + static_cast<int32_t>(i), ids + waiting, values + waiting);
    }
    int64_t i = 0;
    for (; i + V::kLanes <= waiting; i += V::kLanes) {
      lanes.Add(V::Load(values + i), V::LoadInt(ids + i));
    }
    waiting -= i;
    V::Store(values, V::Load(values + i));
    V::StoreInt(ids, V::LoadInt(ids + i));
    const float largest = V::Largest(lanes.best);
    known = largest > known ? largest : known;
  }
  if (waiting > 0) lanes.Add(LoadLogits<V>(values, waiting), V::LoadInt(ids));
  return lanes.Best();
}

template <typename V>
int64_t CollectAtLeast(const float* logits, int64_t count, float bound, int32_t* ids,
                       float* values) {
  const typename V::Float least = V::Set(bound);
  int64_t found = 0;
  for (int64_t i = 0; i < count; i += V::kLanes) {
    found += V::Compress(LoadLogits<V>(logits + i, count - i), least, count - i,
                         static_cast<int32_t>(i), ids + found, values + found);
  }
  return found;
}

// A group: one lane of kGroupVectors vectors.
inline constexpr int kGroupVectors = 16;

template <typename V>
int64_t GroupMaxima(const float* logits, int64_t count, float* maxima) {
  constexpr int64_t kRun = kGroupVectors * V::kLanes;
  float* out = maxima;
  for (int64_t begin = 0; begin < count; begin += kRun, out += V::kLanes) {
    const int64_t end = begin + kRun < count ? begin + kRun : count;
    typename V::Float largest = V::Set(-INFINITY);
    for (int64_t i = begin; i < end; i += V::kLanes) {
      largest = V::Max(LoadLogits<V>(logits + i, end - i), largest);
    }
    V::Store(out, largest);
  }
  return out - maxima;
}

template <typename V>
SPRY_INLINE typename V::Float Likelihood(typename V::Float x, const DrawSpec& spec) {
  return VecExp<V>(V::Div(V::Sub(x, V::Set(spec.max)), V::Set(spec.temperature)));
}

template <typename V>
uint64_t Masses(const float* logits, int64_t count, float bound, const DrawSpec& spec,
                uint32_t* masses) {
  using F = typename V::Float;
  const F least = V::Set(bound);
  typename V::Int sums = V::SetInt(0);
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const F x = LoadLogits<V>(logits + i, count - i);
    const F mass = V::Mul(Likelihood<V>(x, spec), V::Set(0x1p30f));
    const typename V::Int whole = V::Truncate(V::SelectLess(x, least, V::Zero(), mass));
    if (masses != nullptr) V::StoreInt(masses + i, whole);
    sums = V::AddWide(sums, whole);
  }
  return V::SumWide(sums);
}

template <typename V>
float LowestByMinP(const float* logits, int64_t count, float min_p, const DrawSpec& spec) {
  using F = typename V::Float;
  const F bound = V::Set(min_p);
  F lowest = V::Set(spec.max);
  for (int64_t i = 0; i < count; i += V::kLanes) {
    const F x = LoadLogits<V>(logits + i, count - i);
    lowest = V::Min(V::SelectLess(Likelihood<V>(x, spec), bound, V::Set(spec.max), x), lowest);
  }
  return -V::Largest(V::Negate(lowest));
}

template <typename V>
float SumOfExp(const float* logits, int64_t count, float max) {
  using F = typename V::Float;
  constexpr int64_t kSegment = 1024;  // reference/sample.cc
  constexpr int kVectors = 16 / V::kLanes;
  const F shift = V::Set(max);
  float sum = 0.0f;
  for (int64_t begin = 0; begin < count; begin += kSegment) {
    const int64_t end = begin + kSegment < count ? begin + kSegment : count;
    F lanes[kVectors];
#pragma GCC unroll 2
    for (int c = 0; c < kVectors; ++c) lanes[c] = V::Zero();
    for (int64_t i = begin; i < end; i += 16) {
#pragma GCC unroll 2
      for (int c = 0; c < kVectors; ++c) {
        const int64_t at = i + c * V::kLanes;
        if (at >= end) break;
        lanes[c] = V::Add(lanes[c], VecExp<V>(V::Sub(LoadLogits<V>(logits + at, end - at), shift)));
      }
    }
    sum += V::FoldLanes(lanes);
  }
  return sum;
}

template <typename V>
int64_t CountAbove(const float* logits, int64_t count, float value) {
  int64_t above = 0;
  for (int64_t i = 0; i < count; i += V::kLanes) {
    above += V::CountAbove(LoadLogits<V>(logits + i, count - i), V::Set(value));
  }
  return above;
}

// `value` is finite.
template <typename V>
int64_t CountEqual(const float* logits, int64_t count, float value) {
  int64_t equal = 0;
  for (int64_t i = 0; i < count; i += V::kLanes) {
    equal += V::CountEqual(LoadLogits<V>(logits + i, count - i), V::Set(value));
  }
  return equal;
}

template <typename V>
SampleKernels MakeSampleKernels() {
  return {.scan = ScanLogits<V>,
          .draw = Draw<V>,
          .draw_listed = DrawListed<V>,
          .collect = CollectAtLeast<V>,
          .group_maxima = GroupMaxima<V>,
          .group_size = kGroupVectors,
          .masses = Masses<V>,
          .lowest_by_min_p = LowestByMinP<V>,
          .sum_of_exp = SumOfExp<V>,
          .count_above = CountAbove<V>,
          .count_equal = CountEqual<V>};
}

}  // namespace spry
