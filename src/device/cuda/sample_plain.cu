#include "device/cuda/sample_plain.h"

#include "device/cuda/block_reduce.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"
#include "device/cuda/packed_logit.cuh"
#include "ops/random.h"

namespace spry::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kParts = 32;  // blocks a row
// Above every packed logit: a NaN or an infinity was seen.
constexpr uint64_t kBroken = UINT64_MAX;

// Of one sampled row. Each part is written by its block alone; `arrived` returns to 0 by itself.
struct RowScratch {
  uint64_t largest[kParts];  // logits
  uint64_t best[kParts];     // scores
  uint32_t arrived;
};

__device__ uint64_t Larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// The largest over the parts, or kBroken; all lanes of the calling warp get it.
__device__ uint64_t LargestOf(const uint64_t (&parts)[kParts]) {
  static_assert(kParts == kWarpThreads);
  uint64_t largest = __ldcg(&parts[threadIdx.x % kWarpThreads]);
  for (int step = kWarpThreads / 2; step > 0; step /= 2) {
    largest = Larger(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  }
  return largest;
}

// Calls fn(logit, id) for this thread's ids in ascending order; several loads are in flight.
template <typename Fn>
__device__ void ForIds(const float* row, int32_t vocab_size, const Fn& fn) {
  constexpr int kAhead = 4;
  constexpr int32_t kStep = kParts * kThreads;
  for (int32_t first = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
       first < vocab_size; first += kAhead * kStep) {
    float logits[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      logits[i] = first + i * kStep < vocab_size ? row[first + i * kStep] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i * kStep < vocab_size) fn(logits[i], first + i * kStep);
    }
  }
}

// The first largest of values seen in ascending order of ids. An id below 0: nothing seen.
struct Best {
  float value = -INFINITY;
  int32_t id = -1;

  __device__ void See(float other, int32_t other_id) {
    if (other > value || id < 0) {
      value = other;
      id = other_id;
    }
  }
  __device__ uint64_t Packed() const { return id < 0 ? 0 : Pack(value, id); }
};

__global__ void __launch_bounds__(kThreads)
    LargestKernel(View<float> logits, int32_t vocab_size, RowScratch* scratch) {
  LetNextStart();
  AwaitPrevious();
  const int32_t l = static_cast<int32_t>(blockIdx.y);
  Best best;
  bool broken = false;
  ForIds(logits.Row(l), vocab_size, [&](float logit, int32_t id) {
    broken |= !(logit < INFINITY);
    best.See(logit, id);
  });
  const uint64_t largest = BlockReduce<kThreads>(broken ? kBroken : best.Packed(), Larger);
  if (threadIdx.x == 0) scratch[l].largest[blockIdx.x] = largest;
}

__global__ void __launch_bounds__(kThreads)
    DrawKernel(View<float> logits, int32_t vocab_size, RowScratch* scratch, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t l = static_cast<int32_t>(blockIdx.y);
  if (l >= state.header->num_samples) return;
  const StagedRow& staged = state.rows[state.sample_rows[l]];
  const uint64_t largest = LargestOf(scratch[l].largest);
  if (!staged.live) return;
  const RowState& row_state = state.row_states[staged.row];
  const float max = PackedValue(largest);
  const bool broken = largest == kBroken || !isfinite(max);
  const float temperature = row_state.params.temperature;
  uint64_t best = largest;
  if (!broken && temperature > 0.0f) {
    const DrawKey key = MakeDrawKey(row_state.params.seed, row_state.num_outputs);
    Best drawn;
    ForIds(logits.Row(l), vocab_size, [&](float logit, int32_t id) {
      drawn.See((logit - max) / temperature + DrawGumbel(key, id), id);
    });
    best = BlockReduce<kThreads>(drawn.Packed(), Larger);
  }
  if (threadIdx.x >= kWarpThreads) return;
  uint32_t arrived = 0;
  if (threadIdx.x == 0) {
    __stcg(&scratch[l].best[blockIdx.x], best);
    __threadfence();
    arrived = atomicAdd(&scratch[l].arrived, 1);
  }
  if (__shfl_sync(0xffffffffu, arrived, 0) != kParts - 1) return;
  // The last block of the row.
  __threadfence();
  const uint64_t winner = LargestOf(scratch[l].best);
  if (threadIdx.x != 0) return;
  scratch[l].arrived = 0;
  Sampled& sampled = state.sampled[l];
  sampled.saw_nan = broken;
  sampled.token = PackedId(winner);
}

}  // namespace

int64_t PlainSamplingBytes(int32_t max_samples) {
  return max_samples * static_cast<int64_t>(sizeof(RowScratch));
}

bool PlainRows::Update(const StepSlot& slot) {
  for (int32_t i = 0; i < slot.header->num_joins; ++i) {
    const RowParams& params = slot.joins[i].params;
    plain_[slot.joins[i].row] = params.top_k == 0 && params.top_p >= 1.0f && params.min_p <= 0.0f &&
                                params.num_logprobs < 0 && params.min_outputs == 0;
  }
  uint8_t plain = 1;
  for (int32_t r = 0; r < slot.header->num_rows; ++r) plain &= plain_[slot.rows[r].row];
  return plain != 0;
}

void LaunchPlainSample(const Matrix& logits, std::byte* scratch, const StepState& state,
                       const LaunchContext& context) {
  const Grid grid{.blocks = dim3(kParts, context.shape.samples), .threads = kThreads};
  auto* rows = reinterpret_cast<RowScratch*>(scratch);
  const auto vocab_size = static_cast<int32_t>(logits.width);
  LaunchOverlapped(context, grid, LargestKernel, ViewOf<float>(logits), vocab_size, rows);
  LaunchOverlapped(context, grid, DrawKernel, ViewOf<float>(logits), vocab_size, rows, state);
}

}  // namespace spry::cuda
