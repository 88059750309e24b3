#include "ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "device/cpu/reference/kernels.h"
#include "device/cpu/reference/lanes.h"
#include "device/cpu/stop_mask.h"
#include "ops/logprobs.h"
#include "ops/math.h"
#include "ops/ordered_key.h"
#include "ops/random.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix logits;
  std::byte* const* masses = nullptr;  // [workers, vocabulary] uint32, for top_p
};

constexpr float kInfinity = INFINITY;

struct Extremes {
  float max = -kInfinity;
  bool has_nan = false;
};

// In lanes, which a maximum does not mind, so that the loop becomes vectors.
Extremes FindExtremes(const float* logits, int64_t vocab_size) {
  float max[kLanes];
  int32_t nans[kLanes] = {};
  std::fill_n(max, kLanes, -kInfinity);
  const auto add = [&](float logit, int64_t lane) {
    max[lane] = logit > max[lane] ? logit : max[lane];
    nans[lane] |= logit != logit;
  };
  const int64_t whole = vocab_size / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) add(logits[i + lane], lane);
  }
  for (int64_t i = whole; i < vocab_size; ++i) add(logits[i], i - whole);
  return {.max = *std::max_element(max, max + kLanes),
          .has_nan = std::any_of(nans, nans + kLanes, [](int32_t nan) { return nan != 0; })};
}

int32_t FirstOf(const float* logits, float value, int32_t vocab_size) {
  for (int32_t i = 0; i < vocab_size; ++i) {
    if (logits[i] == value) return i;
  }
  return 0;
}

// ---- log-probabilities of the raw logits ----

// log sum_i exp(logits_i - max): each run of kSumSegment ids is summed in lanes, the runs are added
// in ascending order.
constexpr int64_t kSumSegment = 1024;

float LogOfSum(const float* logits, int64_t vocab_size, float max) {
  float sum = 0.0f;
  for (int64_t begin = 0; begin < vocab_size; begin += kSumSegment) {
    const float* segment = logits + begin;
    sum += SumInLanes(std::min(kSumSegment, vocab_size - begin),
                      [=](int64_t i, float lane) { return lane + Exp(segment[i] - max); });
  }
  return Log(sum);
}

// Where a token stands by falling logit, ties by rising id, from 1.
int32_t RankOf(const float* logits, int32_t vocab_size, int32_t token) {
  int32_t rank = 1;
  for (int32_t i = 0; i < vocab_size; ++i) {
    rank += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
  }
  return rank;
}

// The `count` first by that order, by insertion: ids come in ascending order, so a tie goes behind.
int32_t FindTop(const float* logits, int32_t vocab_size, int32_t count, TokenLogprob* top) {
  int32_t found = 0;
  for (int32_t i = 0; i < vocab_size && count > 0; ++i) {
    if (found == count && !(logits[i] > top[found - 1].logprob)) continue;
    int32_t at = found < count ? found++ : found - 1;
    for (; at > 0 && logits[i] > top[at - 1].logprob; --at) top[at] = top[at - 1];
    top[at] = {.token = TokenId(i), .logprob = logits[i]};
  }
  return found;
}

struct TokenQuery {
  int32_t token = 0;
  int32_t num_top = 0;  // wanted
};

TokenLogprobs MakeLogprobs(const float* logits, int32_t vocab_size, float max,
                           const TokenQuery& query) {
  TokenLogprobs result;
  const float log_sum = LogOfSum(logits, vocab_size, max);
  const auto logprob = [=](float logit) { return logit - max - log_sum; };
  result.rank = RankOf(logits, vocab_size, query.token);
  result.chosen = {.token = TokenId(query.token), .logprob = logprob(logits[query.token])};
  result.num_top = FindTop(logits, vocab_size, std::min(query.num_top, kMaxLogprobs), result.top);
  for (int32_t i = 0; i < result.num_top; ++i) {
    result.top[i].logprob = logprob(result.top[i].logprob);
  }
  return result;
}

// ---- filters ----

struct Selection {
  uint32_t key = 0;
  uint64_t above = 0;  // weight of all larger keys
};

// The largest key that, with all larger ones, weighs at least `target` (> 0, <= all). Digit by
// digit from the top; integer weights, so no order of summation can matter.
template <typename Weight>
Selection SelectByWeight(const float* logits, int32_t vocab_size, uint64_t target,
                         const Weight& weight) {
  constexpr int kDigitBits = 8;
  Selection selection;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    uint64_t weights[1 << kDigitBits] = {};
    for (int32_t i = 0; i < vocab_size; ++i) {
      const uint64_t difference = OrderedKey(logits[i]) ^ selection.key;
      if (difference >> shift >> kDigitBits != 0) continue;  // another prefix
      weights[(OrderedKey(logits[i]) >> shift) & ((1 << kDigitBits) - 1)] += weight(i);
    }
    uint32_t digit = (1 << kDigitBits) - 1;
    while (digit > 0 && selection.above + weights[digit] < target) {
      selection.above += weights[digit--];
    }
    selection.key |= digit << shift;
  }
  return selection;
}

// Probabilities relative to the likeliest token, as whole multiples of 2^-30: sums are exact and
// the same in any order. Tokens a billion times less likely than the best weigh nothing in top_p.
constexpr float kMassUnit = 0x1p30f;

// What may be drawn: logits at or above a key, of those equal to it only the first few.
struct Kept {
  uint32_t lowest_key = 0;
  uint64_t ties = UINT64_MAX;
};

class Filter {
 public:
  // `masses` is room for [vocab_size].
  Filter(const RowParams& params, std::span<const float> logits, float max, uint32_t* masses)
      : params_(params), logits_(logits), max_(max), masses_(masses) {}

  Kept Keep() const {
    Kept kept;
    if (params_.top_k > 0 && params_.top_k < size()) {
      kept.lowest_key =
          SelectByWeight(logits_.data(), size(), params_.top_k, [](int32_t) { return 1; }).key;
    }
    // min_p is a bound on the probability, hence on the logit.
    if (params_.min_p > 0.0f) kept.lowest_key = std::max(kept.lowest_key, LowestByMinP());
    if (params_.top_p < 1.0f) KeepTopP(kept);
    return kept;
  }

 private:
  int32_t size() const { return static_cast<int32_t>(logits_.size()); }

  // The probability relative to the likeliest token's.
  float Likelihood(float logit) const { return Exp((logit - max_) / params_.temperature); }

  uint32_t LowestByMinP() const {
    uint32_t lowest = OrderedKey(max_);
    for (const float logit : logits_) {
      if (Likelihood(logit) < params_.min_p) continue;
      lowest = std::min(lowest, OrderedKey(logit));
    }
    return lowest;
  }

  void KeepTopP(Kept& kept) const {
    uint64_t total = 0;
    for (int32_t i = 0; i < size(); ++i) {
      const auto mass = static_cast<int32_t>(Likelihood(logits_[i]) * kMassUnit);
      masses_[i] = OrderedKey(logits_[i]) < kept.lowest_key ? 0 : static_cast<uint32_t>(mass);
      total += masses_[i];
    }
    const double wanted =
        std::ceil(static_cast<double>(params_.top_p) * static_cast<double>(total));
    const uint64_t target = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, total);
    const Selection selection =
        SelectByWeight(logits_.data(), size(), target, [this](int32_t i) { return masses_[i]; });
    kept.lowest_key = selection.key;
    for (int32_t i = 0; i < size(); ++i) {
      if (OrderedKey(logits_[i]) != selection.key) continue;
      kept.ties = (target - selection.above + masses_[i] - 1) / masses_[i];
      return;
    }
  }

  const RowParams& params_;
  std::span<const float> logits_;
  float max_;
  uint32_t* masses_;
};

// ---- the draw ----

// Scores of this many ids are computed at once, kept or not, as vectors.
constexpr int32_t kScoresAtOnce = 256;

int32_t Draw(const RowState& row, std::span<const float> logits, float max, uint32_t* masses) {
  const Filter filter(row.params, logits, max, masses);
  const Kept kept = filter.Keep();
  const DrawKey key = MakeDrawKey(row.params.seed, row.num_outputs);
  const int32_t vocab_size = static_cast<int32_t>(logits.size());
  int32_t best = 0;
  float best_score = -kInfinity;
  uint64_t ties = 0;
  for (int32_t begin = 0; begin < vocab_size; begin += kScoresAtOnce) {
    const int32_t count = std::min(kScoresAtOnce, vocab_size - begin);
    float scores[kScoresAtOnce];
    for (int32_t i = 0; i < count; ++i) {
      scores[i] = DrawScore(key, begin + i, logits[begin + i], row.params.temperature);
    }
    for (int32_t i = 0; i < count; ++i) {
      const uint32_t ordered = OrderedKey(logits[begin + i]);
      if (ordered < kept.lowest_key) continue;
      if (ordered == kept.lowest_key && ++ties > kept.ties) continue;
      if (scores[i] <= best_score) continue;
      best = begin + i;
      best_score = scores[i];
    }
  }
  return best;
}

// `max` is of the raw logits.
int32_t Choose(const RowState& row, std::span<float> logits, float max, uint32_t* masses) {
  const int32_t vocab_size = static_cast<int32_t>(logits.size());
  const bool mask_stops = row.num_outputs < row.params.min_outputs;
  const RowParams unmasked;
  const StopMask mask(mask_stops ? row.params : unmasked, logits.data());
  if (mask_stops) max = FindExtremes(logits.data(), vocab_size).max;
  // Were every id a stop id, nothing would be left to draw from: the first is as good as any.
  const bool draws = row.params.temperature > 0.0f && max > -kInfinity;
  return draws ? Draw(row, logits, max, masses) : FirstOf(logits.data(), max, vocab_size);
}

void Sample(const StepState& state, int32_t l, std::span<float> logits, uint32_t* masses) {
  Sampled& sampled = state.sampled[l];
  const int32_t vocab_size = static_cast<int32_t>(logits.size());
  const Extremes raw = FindExtremes(logits.data(), vocab_size);
  sampled.saw_nan = raw.has_nan || !std::isfinite(raw.max);  // an infinity is as useless as a NaN
  if (sampled.saw_nan) return;
  const RowState& row = state.row_states[state.rows[state.sample_rows[l]].row];
  const int32_t target = state.sample_targets[l];
  sampled.token = target >= 0 ? target : Choose(row, logits, raw.max, masses);
  const int32_t wanted = LogprobsWanted(state, l);
  if (wanted < 0) return;
  sampled.logprobs =
      MakeLogprobs(logits.data(), vocab_size, raw.max, {.token = sampled.token, .num_top = wanted});
}

// By sampled rows.
void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const int64_t vocab_size = args.logits.width;
  uint32_t* masses = reinterpret_cast<uint32_t*>(*args.masses) + worker.index() * vocab_size;
  const Share share = ShareOf(state.header->num_samples, worker);
  for (int64_t l = share.begin; l < share.end; ++l) {
    if (!state.rows[state.sample_rows[l]].live) continue;
    const std::span<float> logits(args.logits.Row(l), vocab_size);
    Sample(state, static_cast<int32_t>(l), logits, masses);
  }
}

}  // namespace

Result<BoundCall> BindSample(const OpRecord& op, BindContext& context) {
  const Matrix logits = context.Resolve(op.inputs[0]);
  const int64_t bytes = context.pool().size() * logits.width * sizeof(uint32_t);
  const Args args{.logits = logits, .masses = context.ShareScratch(bytes)};
  return BoundCall{.op = op.id, .run = Run, .args = context.Keep(args)};
}

}  // namespace spry::reference
