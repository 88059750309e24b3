#include "device/cpu/simd/sample_row.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "device/cpu/stop_mask.h"
#include "ops/ordered_key.h"

namespace spry {
namespace {

constexpr float kInfinity = INFINITY;

int64_t ListBytes(int64_t vocab_size) { return (vocab_size + kListSlack) * 4; }

struct Selection {
  uint32_t key = 0;
  uint64_t above = 0;  // mass of all larger keys
  uint64_t each = 0;   // mass of one entry with this key
};

// The largest key that, with all larger ones, weighs at least `target` (> 0, <= all). Digit by
// digit from the top, each pass over what the last one left; the lists are used up.
Selection SelectByMass(uint32_t* keys, uint32_t* masses, int64_t count, uint64_t target) {
  constexpr int kDigitBits = 8;
  constexpr int kDigits = 1 << kDigitBits;
  Selection selection;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    uint64_t sums[kDigits] = {};
    for (int64_t i = 0; i < count; ++i) sums[(keys[i] >> shift) & (kDigits - 1)] += masses[i];
    uint32_t digit = kDigits - 1;
    while (digit > 0 && selection.above + sums[digit] < target) selection.above += sums[digit--];
    selection.key |= digit << shift;
    int64_t left = 0;
    for (int64_t i = 0; i < count; ++i) {
      const bool stays = ((keys[i] >> shift) & (kDigits - 1)) == digit;
      keys[left] = keys[i];
      masses[left] = masses[i];
      left += stays;
    }
    count = left;
  }
  selection.each = masses[0];
  return selection;
}

}  // namespace

int64_t SampleScratch::Bytes(int64_t vocab_size) { return 4 * ListBytes(vocab_size); }

SampleScratch SampleScratch::Map(int64_t vocab_size, std::byte* base) {
  const int64_t bytes = ListBytes(vocab_size);
  return {.ids = reinterpret_cast<int32_t*>(base),
          .values = reinterpret_cast<float*>(base + bytes),
          .keys = reinterpret_cast<uint32_t*>(base + 2 * bytes),
          .masses = reinterpret_cast<uint32_t*>(base + 3 * bytes)};
}

DrawSpec MakeDrawSpec(const RowState& row, const LogitScan& scan) {
  const DrawKey key = MakeDrawKey(row.params.seed, row.num_outputs);
  // The likeliest id's own score: no id that cannot reach it needs its noise computed.
  return {.key = key,
          .max = scan.max,
          .temperature = row.params.temperature,
          .least = DrawScore(key, scan.first, scan.max, row.params.temperature)};
}

// The k-th largest of groups' maxima bounds the k-th largest logit from below, so that few logits
// are left to select from.
float RowSampler::KthLargest(const float* logits, int64_t k) const {
  float* maxima = scratch_.values;
  const int64_t groups = kernels_.group_maxima(logits, vocab_size_, maxima);
  float bound = -kInfinity;
  if (k <= groups) {
    std::nth_element(maxima, maxima + k - 1, maxima + groups, std::greater<>());
    bound = maxima[k - 1];
  }
  const int64_t count = kernels_.collect(logits, vocab_size_, bound, scratch_.ids, scratch_.values);
  float* values = scratch_.values;
  std::nth_element(values, values + k - 1, values + count, std::greater<>());
  return values[k - 1];
}

RowSampler::Kept RowSampler::ApplyTopP(float top_p, const float* logits, float lowest,
                                       const DrawSpec& spec) const {
  const uint64_t total = kernels_.masses(logits, vocab_size_, lowest, spec, nullptr);
  const double wanted = std::ceil(static_cast<double>(top_p) * static_cast<double>(total));
  const uint64_t target = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, total);
  // Mostly the few likeliest ids weigh enough. Behind e^-21 nothing weighs anything.
  int64_t count = 0;
  for (const float reach : {4.0f, 9.0f, 22.0f}) {
    const float bound = std::max(lowest, spec.max - reach * spec.temperature);
    count = kernels_.collect(logits, vocab_size_, bound, scratch_.ids, scratch_.values);
    if (kernels_.masses(scratch_.values, count, bound, spec, scratch_.masses) >= target) break;
  }
  for (int64_t i = 0; i < count; ++i) scratch_.keys[i] = OrderedKey(scratch_.values[i]);
  const Selection selection = SelectByMass(scratch_.keys, scratch_.masses, count, target);
  return {.lowest = FloatFromKey(selection.key),
          .ties = (target - selection.above + selection.each - 1) / selection.each};
}

RowSampler::Kept RowSampler::Filter(const RowParams& params, const float* logits,
                                    const DrawSpec& spec) const {
  Kept kept{.lowest = -kInfinity};
  if (params.top_k > 0 && params.top_k < vocab_size_) {
    kept.lowest = KthLargest(logits, params.top_k);
  }
  if (params.min_p > 0.0f) {
    kept.lowest =
        std::max(kept.lowest, kernels_.lowest_by_min_p(logits, vocab_size_, params.min_p, spec));
  }
  if (params.top_p < 1.0f) kept = ApplyTopP(params.top_p, logits, kept.lowest, spec);
  return kept;
}

int32_t RowSampler::Draw(const RowState& row, const float* logits, const LogitScan& scan) const {
  const DrawSpec spec = MakeDrawSpec(row, scan);
  const Kept kept = Filter(row.params, logits, spec);
  if (kept.lowest == -kInfinity) return kernels_.draw(logits, vocab_size_, 0, spec).id;
  int64_t count = kernels_.collect(logits, vocab_size_, kept.lowest, scratch_.ids, scratch_.values);
  if (kept.ties != UINT64_MAX) {
    uint64_t ties = 0;
    int64_t left = 0;
    for (int64_t i = 0; i < count; ++i) {
      scratch_.ids[left] = scratch_.ids[i];
      scratch_.values[left] = scratch_.values[i];
      left += scratch_.values[i] != kept.lowest || ++ties <= kept.ties;
    }
    count = left;
  }
  return kernels_.draw_listed(scratch_.values, scratch_.ids, count, spec).id;
}

int32_t RowSampler::Pick(const RowState& row, float* logits, const LogitScan& scan) const {
  const bool mask_stops = row.num_outputs < row.params.min_outputs;
  const RowParams unmasked;
  const StopMask mask(mask_stops ? row.params : unmasked, logits);
  const LogitScan masked = mask_stops ? kernels_.scan(logits, vocab_size_) : scan;
  // Were every id a stop id, nothing would be left to draw from: the first is as good as any.
  const bool draws = row.params.temperature > 0.0f && masked.max > -kInfinity;
  return draws ? Draw(row, logits, masked) : masked.first;
}

int32_t RowSampler::FindTop(const float* logits, int32_t wanted, TokenLogprob* top) const {
  if (wanted == 0) return 0;
  wanted = std::min(wanted, vocab_size_);
  const float bound = KthLargest(logits, wanted);
  const int64_t count = kernels_.collect(logits, vocab_size_, bound, scratch_.ids, scratch_.values);
  // By insertion: ids come in ascending order, so a tie goes behind.
  int32_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float logit = scratch_.values[i];
    if (found == wanted && !(logit > top[found - 1].logprob)) continue;
    int32_t at = found < wanted ? found++ : found - 1;
    for (; at > 0 && logit > top[at - 1].logprob; --at) top[at] = top[at - 1];
    top[at] = {.token = TokenId(scratch_.ids[i]), .logprob = logit};
  }
  return found;
}

void RowSampler::ReportLogprobs(const float* logits, float max, int32_t wanted,
                                Sampled& sampled) const {
  TokenLogprobs& result = sampled.logprobs;
  const float log_sum = Log(kernels_.sum_of_exp(logits, vocab_size_, max));
  const auto logprob = [=](float logit) { return logit - max - log_sum; };
  const float chosen = logits[sampled.token];
  result.rank = static_cast<int32_t>(1 + kernels_.count_above(logits, vocab_size_, chosen) +
                                     kernels_.count_equal(logits, sampled.token, chosen));
  result.chosen = {.token = TokenId(sampled.token), .logprob = logprob(chosen)};
  result.num_top = FindTop(logits, std::min(wanted, kMaxLogprobs), result.top);
  for (int32_t i = 0; i < result.num_top; ++i) {
    result.top[i].logprob = logprob(result.top[i].logprob);
  }
}

}  // namespace spry
