// The draw of rows that are greedy or have a temperature and nothing else: the kernel that makes a
// row's logits scores each as it comes, and leaves the best of the row for advance. A row is then
// sampled without its logits being read again.
#pragma once

#include <cstdint>

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/draw.h"
#include "device/cuda/element.cuh"
#include "device/cuda/packed_logit.cuh"
#include "ops/advance.h"
#include "ops/random.h"

namespace spry::cuda {

// Above every packed score: a NaN or an infinity was seen.
inline constexpr uint64_t kBrokenDraw = UINT64_MAX;

// How one row of the logits is drawn; one 16-byte load from shared memory.
struct alignas(16) RowDraw {
  DrawKey key;
  float temperature = -1.0f;  // 0: greedy; below: nothing is drawn
  float inverse = 0.0f;       // about 1 / temperature; 1 for greedy

  __device__ bool wanted() const { return temperature >= 0.0f; }

  // Beyond the step's true count nothing is drawn.
  __device__ static RowDraw Of(const DrawArgs& args, int32_t l) {
    if (args.best == nullptr || l >= args.header->num_samples) return {};
    const RowState& row = args.row_states[args.rows[args.sample_rows[l]].row];
    return {.key = MakeDrawKey(row.params.seed, row.num_outputs),
            .temperature = row.params.temperature,
            .inverse = row.params.temperature > 0.0f ? 1.0f / row.params.temperature : 1.0f};
  }
};

// Not below the noise that DrawScore gives an id, for a sixth of its instructions:
// -log(-log(u)) <= -log(1 - u). It needs no logit.
__device__ inline float NoiseCeiling(DrawKey key, int32_t id) {
  constexpr float kLog2 = 0.693148f;  // rounded up
  // 1 - DrawUniform, its bits put together: a conversion costs four of these.
  const uint32_t bits = DrawBits(key, id) >> 9 | 0x3f800000u;
  const float rest = (2.0f - __uint_as_float(bits)) - 0x1p-24f;
  return -kLog2 * __log2f(rest);
}

// Not below the score of a logit whose noise is at most `noise`: 0 for greedy rows.
__device__ inline float ScoreCeiling(const RowDraw& draw, float logit, float noise) {
  constexpr float kSlack = 1e-3f;  // absolute, and of the logit's part: approximate operations
  const float scaled = logit * draw.inverse;
  return fmaf(fabsf(scaled), kSlack, scaled) + (noise + kSlack);
}

// Not below the score of an id.
__device__ inline float ScoreCeilingOf(const RowDraw& draw, int32_t id, float logit) {
  const bool noisy = draw.temperature > 0.0f;
  return noisy ? ScoreCeiling(draw, logit, NoiseCeiling(draw.key, id)) : logit;
}

// Tells most ids that cannot reach a score that some id of the row has, `known`, at half the cost
// of their ceilings: the score is at most logit / temperature - log(1 - u), so 1 - u must not be
// above exp(logit / temperature - known). Of u the first bits do. NaNs and infinities pass.
struct DrawFilter {
  DrawKey key;
  float scale;   // of a logit, to a power of two
  float offset;  // of the power; with slack for what is approximate
  bool greedy;
  float known;

  __device__ DrawFilter(const RowDraw& row, float known)
      : key(row.key), greedy(row.temperature == 0.0f), known(known) {
    constexpr float kLog2E = 1.442695f;
    scale = row.inverse * kLog2E;
    offset = kSlack * 1024.0f - kLog2E * known + fabsf(known) * kSlack;
  }
  __device__ bool Passes(int32_t id, float logit) const {
    return MayPass(DrawFirstBits(key, id), logit);
  }
  // Whether one of eight may: the largest logit and the first bits of the largest u, together. The
  // eight hashes are taken side by side, for the latency of each.
  __device__ bool AnyPasses(int32_t first_id, const float (&logits)[8]) const {
    float logit = logits[0];
    uint32_t bits = DrawFirstBits(key, first_id);
#pragma unroll
    for (int e = 1; e < 8; ++e) {
      asm("max.NaN.f32 %0, %0, %1;" : "+f"(logit) : "f"(logits[e]));
      bits = max(bits, DrawFirstBits(key, first_id + e));
    }
    return MayPass(bits, logit);
  }

 private:
  static constexpr float kSlack = 0x1p-19f;
  __device__ bool MayPass(uint32_t first_bits, float logit) const {
    if (greedy) return !(logit < known);
    constexpr uint32_t kUnknown = 0xff;  // bits that may be anything
    const float power = logit * scale;
    const float most = Exp2(fabsf(power) * kSlack + (power + offset));
    const float u = __uint_as_float(first_bits >> 9 | 0x3f800000u | kUnknown);
    return !(0x1.fffffep0f - u > most);
  }
};

// The score that `best` stands for; none, or a broken one: what every id passes.
__device__ inline float KnownScore(uint64_t best) { return fmaxf(PackedValue(best), -INFINITY); }

// What an id counts; LeaveBest joins them.
__device__ inline uint64_t PackedDraw(const RowDraw& draw, int32_t id, float logit) {
  if (!(logit < INFINITY)) return kBrokenDraw;
  if (draw.temperature == 0.0f) return Pack(logit, id);
  return Pack(DrawScore(draw.key, id, logit, draw.temperature), id);
}

// The best of `best` and eight neighbouring ids, none of whose scores is above its ceiling. The
// likeliest first: once its score is known most others need none.
__device__ inline uint64_t BestOfEight(const RowDraw& row, const float (&logits)[8],
                                       float (&ceilings)[8], int32_t first_id, uint64_t best) {
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (!(logits[e] < INFINITY)) ceilings[e] = INFINITY;
  }
#pragma unroll 1
  for (int turn = 0; turn < 8; ++turn) {
    float top = KnownScore(best);
    int likeliest = -1;
    float logit = 0.0f;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (!(ceilings[e] >= top)) continue;
      top = ceilings[e];
      likeliest = e;
      logit = logits[e];
    }
    if (likeliest < 0) break;
    best = max(best, PackedDraw(row, first_id + likeliest, logit));
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e == likeliest) ceilings[e] = -INFINITY;
    }
  }
  return best;
}

// The best of the ids that one thread sees, in ascending order, of one row.
struct BestDraw {
  float score = -INFINITY;  // +infinity: broken
  int32_t id = 0;
  float known = -INFINITY;  // a score that some id of the row has; nothing below needs to be made

  // Any earlier value will do: what blocks find does not depend on what they know of each other.
  __device__ void Learn(uint64_t best) {
    if (best != kBrokenDraw) known = fmaxf(known, PackedValue(best));
  }

  __device__ void See(const RowDraw& draw, float logit, int32_t other_id) {
    float other = logit;
    if (!(logit < INFINITY)) {
      other = INFINITY;
    } else if (draw.temperature > 0.0f) {
      if (ScoreCeilingOf(draw, other_id, logit) < fmaxf(score, known)) return;
      other = DrawScore(draw.key, other_id, logit, draw.temperature);
    }
    if (!(other > score)) return;
    score = other;
    id = other_id;
  }
  __device__ uint64_t Packed() const { return score < INFINITY ? Pack(score, id) : kBrokenDraw; }
};

// The best of some ids of row l. A maximum of integers: the order in which blocks come does not
// matter.
__device__ inline void LeaveBest(const DrawArgs& args, int32_t l, uint64_t packed) {
  atomicMax(reinterpret_cast<unsigned long long*>(&args.best[l]), packed);
}

// Joins what kLanes neighbouring lanes saw of row l; all lanes of the warp call it.
template <int kLanes>
__device__ void LeaveBest(const DrawArgs& args, bool wanted, const BestDraw& best, int32_t l) {
  uint64_t packed = best.Packed();
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, packed, step);
    packed = other > packed ? other : packed;
  }
  if (wanted && threadIdx.x % kLanes == 0) LeaveBest(args, l, packed);
}

// For advance: the draw of row l, once every logit has been seen. The place is free again.
__device__ inline RowSample TakeBest(const DrawArgs& args, int32_t l) {
  const uint64_t best = args.best[l];
  args.best[l] = 0;
  const bool broken = best == kBrokenDraw || PackedValue(best) == -INFINITY;
  return {.token = PackedId(best), .fault = broken ? RowFault::kNan : RowFault::kNone};
}

}  // namespace spry::cuda
