#include "tests/device/tile_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/attention/softmax_state.h"
#include "ops/math.h"
#include "tensor/float16.h"

namespace spry::testing {
namespace {

constexpr int kTile = 16;  // keys
constexpr int kProductDims = 32;
constexpr int kRun = 128;
constexpr int kLanes = 16;

// Of products and conversions: subnormals count as zero.
float Flush(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
float RoundToBf16(float x) { return Bf16ToFloat(FloatToBf16(Flush(x))); }
float FlushedFma(float a, float b, float c) { return Flush(fmaf(Flush(a), Flush(b), c)); }

// c + (even + odd), each one chain over the pairs.
float AddProduct(float c, std::span<const float> a, std::span<const float> b) {
  float even = 0.0f, odd = 0.0f;
  for (size_t i = 0; i < a.size(); i += 2) {
    even = FlushedFma(a[i], b[i], even);
    odd = FlushedFma(a[i + 1], b[i + 1], odd);
  }
  return Flush(c + Flush(even + odd));
}

// x - floor(x), rounded down as well.
float Rest(float x) {
  if (std::isinf(x)) return 0.0f;
  const double exact = double{x} - std::floor(x);
  const float rest = static_cast<float>(exact);
  return rest > exact ? std::nextafter(rest, 0.0f) : rest;
}

float Exp2(float x) {
  const float floor = std::floor(x);
  const float rest = Rest(x);
  float p = 0.0770670399f;
  for (const float c : {0.2276449949f, 0.6951167583f, 1.0f}) p = fmaf(p, rest, c);
  return std::ldexp(p, static_cast<int>(std::max(floor, -1000.0f)));
}

// What is known of a segment, in units of log 2.
struct Known {
  float max = -INFINITY;
  std::array<float, kLanes> totals = {};
  std::vector<float> output;
};

class Line {
 public:
  explicit Line(const TileQuery& query)
      : query_(query), bent_(query.params.soft_cap > 0.0f || query.params.has_alibi) {
    const float scale = query.params.scale;
    const float factor = bent_ ? scale : scale * kLog2E;
    for (const float q : query.q) q_.push_back(RoundToBf16(factor * q));
  }

  // The keys [begin, end) of one run.
  void AddRun(int begin, int end, Known& known) const {
    std::vector<float> scores;
    float max = known.max;
    for (int j = begin; j < end; ++j) {
      scores.push_back(Score(j));
      if (scores.back() > max) max = scores.back();
    }
    const float rescale = Exp2(known.max - max);
    known.max = max;
    std::array<float, kRun> weights = {};
    const int run = begin / kRun * kRun;
    for (int j = begin; j < end; ++j) weights[j - run] = RoundToBf16(Exp2(scores[j - begin] - max));
    for (float& total : known.totals) total *= rescale;
    for (int pair = 0; pair < kRun / 2; ++pair) {
      float& total = known.totals[pair % kLanes];
      total = Flush(total + weights[2 * pair + 1]);
      total = Flush(total + weights[2 * pair]);
    }
    for (int d = 0; d < query_.params.v_head_dim; ++d) {
      float sum = 0.0f;
      for (int tile = begin / kTile * kTile; tile < end; tile += kTile) {
        std::array<float, kTile> values = {};  // of what is not seen, its weight is 0
        for (int j = std::max(tile, begin); j < std::min(tile + kTile, end); ++j) {
          values[j - tile] = query_.values[j][d];
        }
        sum = AddProduct(sum, std::span(weights).subspan(tile - run, kTile), values);
      }
      known.output[d] = fmaf(known.output[d], rescale, sum) + 0.0f;
    }
  }

 private:
  float Score(int j) const {
    const AttentionParams& params = query_.params;
    const std::span<const float> key(query_.keys[j], q_.size());
    float score = 0.0f;
    for (size_t d = 0; d < q_.size(); d += kProductDims) {
      score =
          AddProduct(score, std::span(q_).subspan(d, kProductDims), key.subspan(d, kProductDims));
    }
    if (!bent_) return score;
    if (params.soft_cap > 0.0f) score = params.soft_cap * Tanh(score / params.soft_cap);
    if (params.has_alibi) {
      score = fmaf(query_.slope, static_cast<float>(j - query_.position), score);
    }
    return score * kLog2E;
  }

  const TileQuery& query_;
  bool bent_;
  std::vector<float> q_;
};

float Fold(std::array<float, kLanes> lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace

std::vector<float> TileAttention(const TileQuery& query) {
  constexpr float kLn2 = 0.69314718056f;
  const AttentionParams& params = query.params;
  const Line line(query);
  SoftmaxState state;
  std::vector<float> output(params.v_head_dim);
  const auto merge = [&](const SoftmaxState& next, const std::vector<float>& next_output) {
    const MergeFactors factors = Merge(state, next);
    for (size_t d = 0; d < output.size(); ++d) {
      output[d] = MergeOutput(factors, output[d], next_output[d]);
    }
  };
  const int end = query.position + 1;
  int begin = params.window > 0 ? std::max(0, end - params.window) : 0;
  while (begin < end) {
    Known known{.output = std::vector<float>(params.v_head_dim)};
    const int segment_end = std::min(end, (begin / kKvSegment + 1) * kKvSegment);
    for (; begin < segment_end; begin = (begin / kRun + 1) * kRun) {
      line.AddRun(begin, std::min(segment_end, (begin / kRun + 1) * kRun), known);
    }
    begin = segment_end;
    merge({.max = known.max * kLn2, .sum = Fold(known.totals)}, known.output);
  }
  if (params.has_sinks) {
    merge({.max = query.sink, .sum = 1.0f}, std::vector<float>(params.v_head_dim));
  }
  const float inverse = 1.0f / state.sum;
  for (float& x : output) x *= inverse;
  return output;
}

}  // namespace spry::testing
