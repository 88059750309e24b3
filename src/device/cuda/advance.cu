// advance (ops/advance.h): one thread a row, one thread a sample, then the tag. The host reads the
// ring while this runs: what it may read is written before the tag, with system scope, and never
// read back.
#include <cuda/atomic>

#include <algorithm>
#include <cstddef>

#include "device/cuda/draw.cuh"
#include "device/cuda/early_slot.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"
#include "ops/advance.h"

namespace spry::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kWarp = 32;
// The logits of more rows fill the card, so that this kernel begins after them.
constexpr int32_t kMaxEarlyRows = 64;

struct AdvanceArgs {
  StepRings rings;
  int32_t max_rows = 0;
  std::byte* best_draws = nullptr;
};

template <typename T>
__device__ void WriteWords(const T& from, T* to, int32_t words) {
  const auto* source = reinterpret_cast<const uint32_t*>(&from);
  auto* target = reinterpret_cast<uint32_t*>(to);
  for (int32_t i = 0; i < words; ++i) target[i] = source[i];
}

// Writes what num_top says is valid.
__device__ void WriteLogprobs(const TokenLogprobs& from, TokenLogprobs* to) {
  static_assert(sizeof(TokenLogprob) == 2 * sizeof(uint32_t));
  constexpr int32_t kHead = offsetof(TokenLogprobs, top) / sizeof(uint32_t);
  WriteWords(from, to, kHead + 2 * from.num_top);
}

// `bytes` further on in the ring.
template <typename T>
__device__ T* AtEntry(T* first, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(first) + bytes);
}

__global__ void __launch_bounds__(kMaxThreads)
    AdvanceKernel(AdvanceArgs args, bool early, DrawArgs draw, StepState state) {
  LetNextStart();
  // What stage and the step before have left is read while the draws still run (overlap.cuh).
  const uint64_t step = args.rings.counters->step;
  const int64_t bytes = static_cast<int64_t>(step % args.rings.size) * args.rings.result_bytes;
  RowResult* rows = AtEntry(args.rings.first_result.rows, bytes);
  const int32_t first = static_cast<int32_t>(threadIdx.x);
  const int32_t num_rows = state.header->num_rows;
  AdvancingRow row;
  if (first < num_rows) row = RowToAdvance(state, first);
  if (early) BringSlot(args.rings, args.max_rows, step + 1);
  AwaitPrevious();
  for (int32_t r = first; r < num_rows; r += blockDim.x) {
    if (r != first) row = RowToAdvance(state, r);
    const bool drawn = draw.best != nullptr && row.row.sample_index >= 0;
    const RowSample sample =
        drawn ? TakeBest(draw, row.row.sample_index) : SampleOfRow(state, row.row);
    RowResult result;
    AdvanceRow(state, row, sample, result);
    WriteWords(result, &rows[r], sizeof(RowResult) / sizeof(uint32_t));
  }
  // Rows that are drawn as their logits come ask for none.
  if (draw.best == nullptr) {
    TokenLogprobs* logprobs = AtEntry(args.rings.first_result.logprobs, bytes);
    for (int32_t l = static_cast<int32_t>(threadIdx.x); l < state.header->num_samples;
         l += blockDim.x) {
      if (ReportsLogprobs(state, l)) WriteLogprobs(state.sampled[l].logprobs, &logprobs[l]);
    }
  }
  // The release by one thread covers what the barrier has brought before it.
  __syncthreads();
  if (threadIdx.x != 0) return;
  uint64_t* tag = AtEntry(args.rings.first_result.step, bytes);
  args.rings.counters->step = step + 1;
  ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_system>(*tag).store(
      step + 1, ::cuda::memory_order_release);
}

void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const int32_t wanted = CeilDiv(context.shape.rows, kWarp) * kWarp;
  const AdvanceArgs& advance = ArgsAs<AdvanceArgs>(args);
  const DrawArgs draw = context.shape.draws ? MakeDrawArgs(advance.best_draws, state) : DrawArgs{};
  LaunchOverlapped(context, {.blocks = dim3(1), .threads = std::clamp(wanted, kWarp, kMaxThreads)},
                   AdvanceKernel, advance, context.overlap && context.shape.rows <= kMaxEarlyRows,
                   draw, state);
}

}  // namespace

Result<BoundLaunch> BindAdvance(const OpRecord& op, BindContext& context) {
  return BoundLaunch{
      op.id, Launch,
      context.Keep(AdvanceArgs{context.rings(), context.limits().max_rows, context.best_draws()})};
}

}  // namespace spry::cuda
