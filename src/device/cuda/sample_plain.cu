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

// The largest over the parts, or kBroken; every thread of the block gets it.
__device__ uint64_t LargestOf(const uint64_t (&parts)[kParts]) {
  uint64_t largest = 0;
  for (int i = 0; i < kParts; ++i) largest = Larger(largest, __ldcg(&parts[i]));
  return largest;
}

__global__ void __launch_bounds__(kThreads)
    LargestKernel(View<float> logits, int32_t vocab_size, RowScratch* scratch, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t l = static_cast<int32_t>(blockIdx.y);
  if (l >= state.header->num_samples) return;
  const float* row = logits.Row(l);
  uint64_t largest = 0;
  for (int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x); i < vocab_size;
       i += kParts * kThreads) {
    const float logit = row[i];
    const bool broken = logit != logit || logit == INFINITY;
    largest = Larger(largest, broken ? kBroken : Pack(logit, i));
  }
  largest = BlockReduce<kThreads>(largest, Larger);
  if (threadIdx.x == 0) scratch[l].largest[blockIdx.x] = largest;
}

__global__ void __launch_bounds__(kThreads)
    DrawKernel(View<float> logits, int32_t vocab_size, RowScratch* scratch, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const int32_t l = static_cast<int32_t>(blockIdx.y);
  if (l >= state.header->num_samples) return;
  const StagedRow& staged = state.rows[state.sample_rows[l]];
  if (!staged.live) return;
  const RowState& row_state = state.row_states[staged.row];
  const uint64_t largest = LargestOf(scratch[l].largest);
  const float max = PackedValue(largest);
  const bool broken = largest == kBroken || !isfinite(max);
  const float temperature = row_state.params.temperature;
  uint64_t best = largest;
  if (!broken && temperature > 0.0f) {
    const float* row = logits.Row(l);
    const DrawKey key = MakeDrawKey(row_state.params.seed, row_state.num_outputs);
    best = 0;
    for (int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x); i < vocab_size;
         i += kParts * kThreads) {
      best = Larger(best, Pack((row[i] - max) / temperature + DrawGumbel(key, i), i));
    }
    best = BlockReduce<kThreads>(best, Larger);
  }
  if (threadIdx.x != 0) return;
  __stcg(&scratch[l].best[blockIdx.x], best);
  __threadfence();
  if (atomicAdd(&scratch[l].arrived, 1) != kParts - 1) return;
  // The last block of the row.
  __threadfence();
  scratch[l].arrived = 0;
  Sampled& sampled = state.sampled[l];
  sampled.saw_nan = broken;
  sampled.token = PackedId(LargestOf(scratch[l].best));
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
  LaunchOverlapped(context, grid, LargestKernel, ViewOf<float>(logits), vocab_size, rows, state);
  LaunchOverlapped(context, grid, DrawKernel, ViewOf<float>(logits), vocab_size, rows, state);
}

}  // namespace spry::cuda
