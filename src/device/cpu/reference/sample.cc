#include "ops/sampling.h"

#include <algorithm>
#include <cmath>

#include "device/cpu/reference/kernels.h"
#include "device/cpu/reference/lanes.h"
#include "ops/math.h"
#include "ops/random.h"

namespace spry::reference {
namespace {

struct Args {
  Matrix logits;
};

constexpr float kInfinity = INFINITY;

struct Extremes {
  float max = -kInfinity;
  bool has_nan = false;
};

Extremes FindExtremes(const float* logits, int64_t vocab_size) {
  Extremes extremes;
  for (int64_t i = 0; i < vocab_size; ++i) {
    extremes.max = logits[i] > extremes.max ? logits[i] : extremes.max;
    extremes.has_nan |= logits[i] != logits[i];
  }
  return extremes;
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

void ReportLogprobs(const float* logits, int32_t vocab_size, float max, int32_t wanted,
                    Sampled& sampled) {
  const float log_sum = LogOfSum(logits, vocab_size, max);
  const auto logprob = [=](float logit) { return logit - max - log_sum; };
  sampled.rank = RankOf(logits, vocab_size, sampled.token);
  sampled.chosen = {.token = TokenId(sampled.token), .logprob = logprob(logits[sampled.token])};
  sampled.num_top = FindTop(logits, vocab_size, std::min(wanted, kMaxLogprobs), sampled.top);
  for (int32_t i = 0; i < sampled.num_top; ++i) {
    sampled.top[i].logprob = logprob(sampled.top[i].logprob);
  }
}

// ---- stop ids before min_outputs ----

// Masks the row's stop ids in place while it lives: the logits stay what the model said.
class StopMask {
 public:
  StopMask(const RowParams& params, float* logits) : params_(params), logits_(logits) {
    for (int32_t i = 0; i < params.num_stop_ids; ++i) {
      float& logit = logits[params.stop_ids[i].value()];
      kept_[i] = logit;
      logit = -kInfinity;
    }
  }
  ~StopMask() {  // backwards, as an id may be there twice
    for (int32_t i = params_.num_stop_ids; i-- > 0;) {
      logits_[params_.stop_ids[i].value()] = kept_[i];
    }
  }
  StopMask(const StopMask&) = delete;
  StopMask& operator=(const StopMask&) = delete;

 private:
  const RowParams& params_;
  float* logits_;
  float kept_[kMaxStopTokenIds];
};

// ---- filters ----

// Unsigned numbers in the order of the floats; both zeros are one.
uint32_t OrderedKey(float logit) {
  const uint32_t bits = BitsFromFloat(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

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
      weights[(OrderedKey(logits[i]) >> shift) & ((1 << kDigitBits) - 1)] += weight(logits[i]);
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
  Filter(const RowParams& params, const float* logits, int32_t vocab_size, float max)
      : params_(params), logits_(logits), vocab_size_(vocab_size), max_(max) {}

  // (logit - max) / temperature: at most 0, so that no temperature overflows.
  float Scaled(float logit) const { return (logit - max_) / params_.temperature; }

  Kept Keep() const {
    Kept kept;
    if (params_.top_k > 0 && params_.top_k < vocab_size_) {
      kept.lowest_key =
          SelectByWeight(logits_, vocab_size_, params_.top_k, [](float) { return 1; }).key;
    }
    if (params_.top_p >= 1.0f && params_.min_p <= 0.0f) return kept;
    // min_p is a bound on the probability, hence on the logit: the lowest that passes.
    if (params_.min_p > 0.0f) kept.lowest_key = std::max(kept.lowest_key, LowestByMinP());
    if (params_.top_p >= 1.0f) return kept;
    const auto mass = [&](float logit) -> uint64_t {
      if (OrderedKey(logit) < kept.lowest_key) return 0;
      return static_cast<uint64_t>(Exp(Scaled(logit)) * kMassUnit);
    };
    uint64_t total = 0;
    for (int32_t i = 0; i < vocab_size_; ++i) total += mass(logits_[i]);
    const double wanted =
        std::ceil(static_cast<double>(params_.top_p) * static_cast<double>(total));
    const uint64_t target = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, total);
    const Selection selection = SelectByWeight(logits_, vocab_size_, target, mass);
    kept.lowest_key = selection.key;
    for (int32_t i = 0; i < vocab_size_; ++i) {
      if (OrderedKey(logits_[i]) != selection.key) continue;
      const uint64_t each = mass(logits_[i]);
      kept.ties = (target - selection.above + each - 1) / each;
      break;
    }
    return kept;
  }

 private:
  uint32_t LowestByMinP() const {
    uint32_t lowest = OrderedKey(max_);
    for (int32_t i = 0; i < vocab_size_; ++i) {
      if (Exp(Scaled(logits_[i])) < params_.min_p) continue;
      lowest = std::min(lowest, OrderedKey(logits_[i]));
    }
    return lowest;
  }

  const RowParams& params_;
  const float* logits_;
  int32_t vocab_size_;
  float max_;
};

// ---- the draw ----

int32_t Draw(const RowState& row, const float* logits, int32_t vocab_size, float max) {
  const Filter filter(row.params, logits, vocab_size, max);
  const Kept kept = filter.Keep();
  const DrawKey key = MakeDrawKey(row.params.seed, row.num_outputs);
  int32_t best = 0;
  float best_score = -kInfinity;
  uint64_t ties = 0;
  for (int32_t i = 0; i < vocab_size; ++i) {
    const uint32_t ordered = OrderedKey(logits[i]);
    if (ordered < kept.lowest_key) continue;
    if (ordered == kept.lowest_key && ++ties > kept.ties) continue;
    const float score = filter.Scaled(logits[i]) + DrawGumbel(key, i);
    if (score > best_score) {
      best = i;
      best_score = score;
    }
  }
  return best;
}

void SampleRow(const RowState& row, float* logits, int32_t vocab_size, Sampled& sampled) {
  const Extremes raw = FindExtremes(logits, vocab_size);
  sampled.saw_nan = raw.has_nan || !std::isfinite(raw.max);  // an infinity is as useless as a NaN
  if (sampled.saw_nan) return;
  {
    const bool mask_stops = row.num_outputs < row.params.min_outputs;
    const RowParams unmasked;
    const StopMask mask(mask_stops ? row.params : unmasked, logits);
    const float max = mask_stops ? FindExtremes(logits, vocab_size).max : raw.max;
    // Were every id a stop id, nothing would be left to draw from: the first is as good as any.
    const bool draws = row.params.temperature > 0.0f && max > -kInfinity;
    sampled.token = draws ? Draw(row, logits, vocab_size, max) : FirstOf(logits, max, vocab_size);
  }
  if (row.params.num_logprobs < 0) return;
  ReportLogprobs(logits, vocab_size, raw.max, row.params.num_logprobs, sampled);
}

// By sampled rows.
void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  const Share share = ShareOf(state.header->num_samples, worker);
  for (int64_t l = share.begin; l < share.end; ++l) {
    const StagedRow& row = state.rows[state.sample_rows[l]];
    if (!row.live) continue;
    SampleRow(state.row_states[row.row], args.logits.Row(l),
              static_cast<int32_t>(args.logits.width), state.sampled[l]);
  }
}

}  // namespace

Result<BoundCall> BindSample(const OpRecord& op, BindContext& context) {
  const Args args{.logits = context.Resolve(op.inputs[0])};
  return BoundCall{.op = op.id, .run = Run, .args = context.Keep(args)};
}

}  // namespace spry::reference
