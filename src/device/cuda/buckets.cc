#include "device/cuda/buckets.h"

#include <algorithm>
#include <bit>

namespace spry::cuda {
namespace {

constexpr int32_t kExactDecodes = 32;
constexpr int32_t kLeastStep = 8;

// The smallest multiple of a step >= count, `per_octave` of them between powers of two.
int32_t Rounded(int32_t count, int32_t per_octave) {
  if (count <= 0) return 0;
  const auto below = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(count - 1)));
  const int32_t step = std::max(below / per_octave, kLeastStep);
  return (count + step - 1) / step * step;
}

int32_t SampledTokens(int32_t count) { return count <= kExactDecodes ? count : Rounded(count, 16); }

int32_t MixedTokens(int32_t count) { return Rounded(count, 8); }

int32_t MixedSamples(int32_t count) {
  if (count == 0) return 0;
  if (count > kLeastStep) return Rounded(count, 4);
  return static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(count)));
}

}  // namespace

LaunchShape ExactShape(const StepHeader& header, const RowKinds& kinds) {
  return {.tokens = header.num_tokens,
          .rows = header.num_rows,
          .samples = header.num_samples,
          .decode = header.num_tokens == header.num_rows,
          .in_order = kinds.in_order,
          .draws = kinds.plain};
}

LaunchShape BucketOf(const StepHeader& header, const StepLimits& limits, const RowKinds& kinds) {
  LaunchShape shape = ExactShape(header, kinds);
  if (shape.tokens == shape.samples) {
    shape.tokens = shape.samples = SampledTokens(shape.tokens);
  } else {
    shape.tokens = MixedTokens(shape.tokens);
    shape.samples = MixedSamples(shape.samples);
  }
  shape.tokens = std::min(shape.tokens, limits.max_tokens);
  // More samples than rows are those of prompts whose log-probabilities are asked for.
  const int32_t most_samples =
      header.num_samples <= header.num_rows ? limits.max_rows : limits.max_samples;
  shape.samples = std::min({shape.samples, most_samples, limits.max_samples});
  shape.rows = std::min(shape.tokens, limits.max_rows);  // a row has at least one token
  return shape;
}

std::vector<LaunchShape> DecodeBuckets(const StepLimits& limits, int32_t drawn_rows,
                                       bool in_order) {
  std::vector<LaunchShape> buckets;
  const int32_t most = std::min({limits.max_rows, limits.max_tokens, limits.max_samples});
  for (int32_t rows = 1; rows <= most; ++rows) {
    const StepHeader header{.num_tokens = rows, .num_rows = rows, .num_samples = rows};
    for (const bool plain : {rows <= drawn_rows, false}) {
      const LaunchShape bucket = BucketOf(header, limits, {.plain = plain, .in_order = in_order});
      if (std::ranges::find(buckets, bucket) == buckets.end()) buckets.push_back(bucket);
    }
  }
  return buckets;
}

}  // namespace spry::cuda
