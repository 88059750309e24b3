// sample (ops/sampling.h): a block a row of logits. Filters select by integer weights digit by
// digit, so that no order of summation matters; ids and scores are compared as packed integers.
// The formulas are those of the CPU reference, to the bit.
#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/packed_logit.cuh"
#include "ops/logprobs.h"
#include "ops/math.h"
#include "ops/random.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kLanes = 16;
constexpr int kSumSegment = 1024;   // ids whose exponentials are summed in lanes
constexpr int kMaxSegments = 1024;  // of a vocabulary: a million ids

__device__ uint64_t BlockMax(uint64_t value) {
  return BlockReduce<kThreads>(value, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}
__device__ uint64_t BlockSum(uint64_t value) {
  return BlockReduce<kThreads>(value, [](uint64_t a, uint64_t b) { return a + b; });
}

// A row of logits, seen by the whole block.
struct Logits {
  float* data = nullptr;
  int32_t count = 0;

  // fn(id, logit) for every id, spread over the threads.
  template <typename Fn>
  __device__ void ForEach(const Fn& fn) const {
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < count; i += kThreads) fn(i, data[i]);
  }
};

__device__ uint64_t FindLargest(const Logits& logits) {
  uint64_t largest = 0;
  logits.ForEach([&](int32_t id, float logit) {
    const uint64_t packed = Pack(logit, id);
    largest = packed > largest ? packed : largest;
  });
  return BlockMax(largest);
}

__device__ bool HasNan(const Logits& logits) {
  int has_nan = 0;
  logits.ForEach([&](int32_t, float logit) { has_nan |= logit != logit; });
  return __syncthreads_or(has_nan) != 0;
}

// ---- log-probabilities of the raw logits ----

// log sum_i exp(logits_i - max): 16 threads sum a segment in interleaved lanes; the segments are
// added in ascending order.
__device__ float LogOfSum(const Logits& logits, float max) {
  __shared__ float segments[kMaxSegments];
  const int32_t num_segments = (logits.count + kSumSegment - 1) / kSumSegment;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  const unsigned group = 0xffffu << (threadIdx.x / kLanes % 2 * kLanes);
  for (int32_t s = static_cast<int32_t>(threadIdx.x) / kLanes; s < num_segments;
       s += kThreads / kLanes) {
    const int32_t end = min((s + 1) * kSumSegment, logits.count);
    float sum = 0.0f;
    for (int32_t i = s * kSumSegment + lane; i < end; i += kLanes) {
      sum += Exp(logits.data[i] - max);
    }
    sum = FoldLanes<kLanes>(sum, group);
    if (lane == 0) segments[s] = sum;
  }
  __syncthreads();
  float sum = 0.0f;
  for (int32_t s = 0; s < num_segments; ++s) sum += segments[s];
  return Log(sum);
}

__device__ void ReportLogprobs(const Logits& logits, float max, int32_t wanted, Sampled& sampled,
                               int32_t token) {
  const float log_sum = LogOfSum(logits, max);
  const float chosen = logits.data[token];
  const uint64_t packed_chosen = Pack(chosen, token);
  uint64_t above = 0;
  logits.ForEach([&](int32_t id, float logit) { above += Pack(logit, id) > packed_chosen; });
  const uint64_t rank = BlockSum(above) + 1;
  const int32_t num_top = min(min(wanted, kMaxLogprobs), logits.count);
  if (threadIdx.x == 0) {
    sampled.logprobs.rank = static_cast<int32_t>(rank);
    sampled.logprobs.chosen = {.token = TokenId(token), .logprob = chosen - max - log_sum};
    sampled.logprobs.num_top = num_top;
  }
  uint64_t last = UINT64_MAX;
  for (int32_t n = 0; n < num_top; ++n) {
    uint64_t next = 0;
    logits.ForEach([&](int32_t id, float logit) {
      const uint64_t packed = Pack(logit, id);
      if (packed < last && packed > next) next = packed;
    });
    last = BlockMax(next);
    if (threadIdx.x != 0) continue;
    sampled.logprobs.top[n] = {.token = TokenId(PackedId(last)),
                               .logprob = logits.data[PackedId(last)] - max - log_sum};
  }
}

// ---- filters ----

struct Selection {
  uint32_t key = 0;
  uint64_t above = 0;  // weight of all larger keys
};

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;

// The largest key that, with all larger ones, weighs at least `target` (> 0, <= all).
template <typename Weight>
__device__ Selection SelectByWeight(const Logits& logits, uint64_t target, const Weight& weight) {
  __shared__ unsigned long long weights[kDigits];
  __shared__ Selection shared;
  Selection selection;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    if (threadIdx.x < kDigits) weights[threadIdx.x] = 0;
    __syncthreads();
    logits.ForEach([&](int32_t, float logit) {
      const uint32_t key = OrderedKey(logit);
      if (uint64_t{key ^ selection.key} >> shift >> kDigitBits != 0) return;  // another prefix
      const unsigned long long part = weight(logit);
      if (part != 0) atomicAdd(&weights[key >> shift & (kDigits - 1)], part);
    });
    __syncthreads();
    if (threadIdx.x == 0) {
      uint32_t digit = kDigits - 1;
      while (digit > 0 && selection.above + weights[digit] < target) {
        selection.above += weights[digit--];
      }
      selection.key |= digit << shift;
      shared = selection;
    }
    __syncthreads();
    selection = shared;
  }
  return selection;
}

// Probabilities relative to the likeliest token, as whole multiples of 2^-30, so that sums are
// exact.
constexpr float kMassUnit = 0x1p30f;

// What may be drawn: logits above a key, and those equal to it up to an id.
struct Kept {
  uint32_t lowest_key = 0;
  int32_t last_tie = INT32_MAX;
};

// The probability relative to the likeliest token's.
struct Likelihood {
  float max = 0.0f;
  float temperature = 1.0f;

  __device__ float operator()(float logit) const { return Exp((logit - max) / temperature); }
};

// The id of the n-th logit, from 1, whose key is `key`; each thread counts a run of ids.
__device__ int32_t FindTie(const Logits& logits, uint32_t key, uint64_t n) {
  __shared__ int32_t counts[kThreads];
  __shared__ int32_t found;
  const int32_t run = (logits.count + kThreads - 1) / kThreads;
  const int32_t begin = static_cast<int32_t>(threadIdx.x) * run;
  int32_t count = 0;
  for (int32_t i = begin; i < min(begin + run, logits.count); ++i) {
    count += OrderedKey(logits.data[i]) == key;
  }
  counts[threadIdx.x] = count;
  if (threadIdx.x == 0) found = INT32_MAX;
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t thread = 0;
    for (; thread < kThreads && static_cast<uint64_t>(counts[thread]) < n; ++thread) {
      n -= counts[thread];
    }
    for (int32_t i = thread * run; i < min((thread + 1) * run, logits.count); ++i) {
      if (OrderedKey(logits.data[i]) == key && --n == 0) {
        found = i;
        break;
      }
    }
  }
  __syncthreads();
  return found;
}

__device__ Kept Filter(const Logits& logits, const RowParams& params,
                       const Likelihood& likelihood) {
  Kept kept;
  if (params.top_k > 0 && params.top_k < logits.count) {
    kept.lowest_key = SelectByWeight(logits, params.top_k, [](float) { return 1; }).key;
  }
  if (params.min_p > 0.0f) {  // a bound on the probability, hence on the logit
    uint64_t highest = 0;     // of the complements of keys that pass: the lowest key
    logits.ForEach([&](int32_t, float logit) {
      if (likelihood(logit) < params.min_p) return;
      const uint64_t complement = ~OrderedKey(logit);
      highest = complement > highest ? complement : highest;
    });
    const uint32_t lowest = ~static_cast<uint32_t>(BlockMax(highest));
    kept.lowest_key = max(kept.lowest_key, min(lowest, OrderedKey(likelihood.max)));
  }
  if (params.top_p >= 1.0f) return kept;
  const uint32_t lowest_key = kept.lowest_key;
  const auto mass = [&](float logit) -> uint64_t {
    if (OrderedKey(logit) < lowest_key) return 0;
    return static_cast<uint64_t>(likelihood(logit) * kMassUnit);
  };
  uint64_t total = 0;
  logits.ForEach([&](int32_t, float logit) { total += mass(logit); });
  total = BlockSum(total);
  const auto wanted =
      static_cast<uint64_t>(ceil(static_cast<double>(params.top_p) * static_cast<double>(total)));
  const uint64_t target = wanted < 1 ? 1 : wanted > total ? total : wanted;
  const Selection selection = SelectByWeight(logits, target, mass);
  const uint64_t each = mass(FloatFromKey(selection.key));
  kept.lowest_key = selection.key;
  kept.last_tie = FindTie(logits, selection.key, (target - selection.above + each - 1) / each);
  return kept;
}

// ---- the draw ----

__device__ int32_t Draw(const Logits& logits, const RowState& row, float max) {
  const Likelihood likelihood{.max = max, .temperature = row.params.temperature};
  const Kept kept = Filter(logits, row.params, likelihood);
  const DrawKey key = MakeDrawKey(row.params.seed, row.num_outputs);
  uint64_t best = 0;
  logits.ForEach([&](int32_t id, float logit) {
    const uint32_t ordered = OrderedKey(logit);
    if (ordered < kept.lowest_key) return;
    if (ordered == kept.lowest_key && id > kept.last_tie) return;
    const uint64_t packed = Pack(DrawScore(key, id, logit, row.params.temperature), id);
    best = packed > best ? packed : best;
  });
  return PackedId(BlockMax(best));
}

// Masks the row's stop ids in place and returns what they were; thread 0 alone.
__device__ void MaskStops(const RowParams& params, float* logits, float* kept) {
  for (int32_t i = 0; i < params.num_stop_ids; ++i) {
    float& logit = logits[params.stop_ids[i].value()];
    kept[i] = logit;
    logit = -INFINITY;
  }
}
__device__ void UnmaskStops(const RowParams& params, float* logits, const float* kept) {
  for (int32_t i = params.num_stop_ids - 1; i >= 0; --i) {  // backwards: an id may be there twice
    logits[params.stop_ids[i].value()] = kept[i];
  }
}

// The token of a row that may have filters and masked stop ids. The logits are changed for a while.
__device__ int32_t Choose(const Logits& logits, const RowState& row, uint64_t largest) {
  const bool mask_stops = row.num_outputs < row.params.min_outputs && row.params.num_stop_ids > 0;
  __shared__ float kept_stops[kMaxStopTokenIds];
  if (mask_stops) {
    if (threadIdx.x == 0) MaskStops(row.params, logits.data, kept_stops);
    __syncthreads();
    largest = FindLargest(logits);
  }
  // Were every id a stop id, nothing would be left to draw from: the first is as good as any.
  const float max = PackedValue(largest);
  const bool draws = row.params.temperature > 0.0f && max > -INFINITY;
  const int32_t token = draws ? Draw(logits, row, max) : PackedId(largest);
  if (mask_stops) {
    __syncthreads();
    if (threadIdx.x == 0) UnmaskStops(row.params, logits.data, kept_stops);
    __syncthreads();
  }
  return token;
}

__global__ void __launch_bounds__(kThreads)
    SampleKernel(View<float> all_logits, int32_t vocab_size, StepState state) {
  const int32_t l = static_cast<int32_t>(blockIdx.x);
  if (l >= state.header->num_samples) return;
  const StagedRow& staged = state.rows[state.sample_rows[l]];
  if (!staged.live) return;
  Sampled& sampled = state.sampled[l];
  const Logits logits{.data = all_logits.Row(l), .count = vocab_size};
  const uint64_t largest = FindLargest(logits);
  const float max = PackedValue(largest);
  const bool saw_nan = HasNan(logits) || !isfinite(max);  // infinity: as useless as a NaN
  if (threadIdx.x == 0) sampled.saw_nan = saw_nan;
  if (saw_nan) return;
  const int32_t target = state.sample_targets[l];
  const int32_t token =
      target >= 0 ? target : Choose(logits, state.row_states[staged.row], largest);
  if (threadIdx.x == 0) sampled.token = token;
  const int32_t wanted = LogprobsWanted(state, l);
  if (wanted >= 0) ReportLogprobs(logits, max, wanted, sampled, token);
}

struct SampleArgs {
  Matrix logits;
};

void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  if (context.shape.samples == 0 || context.shape.draws) return;  // draw.cuh
  const Matrix& logits = ArgsAs<SampleArgs>(args).logits;
  SampleKernel<<<context.shape.samples, kThreads, 0, context.stream>>>(
      ViewOf<float>(logits), static_cast<int32_t>(logits.width), state);
}

}  // namespace

Result<BoundLaunch> BindSample(const OpRecord& op, BindContext& context) {
  const SampleArgs args{context.Resolve(op.inputs[0])};
  CHECK(args.logits.dtype == DType::kF32);
  if (args.logits.width > int64_t{kMaxSegments} * kSumSegment) {
    return Unimplemented("sample: the vocabulary has " + std::to_string(args.logits.width) +
                         " tokens; the CUDA device takes up to " +
                         std::to_string(kMaxSegments * kSumSegment));
  }
  return BoundLaunch{op.id, Launch, context.Keep(args)};
}

}  // namespace spry::cuda
