// advance (ops/advance.h): one thread a row, then the tag. The host reads the ring while this
// runs: rows are written in full before the tag, with system scope, and never read back.
#include <cuda/atomic>

#include <algorithm>
#include <cstddef>

#include "device/cuda/draw.cuh"
#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"
#include "ops/advance.h"

namespace spry::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kWarp = 32;

struct AdvanceArgs {
  StepRings rings;
  std::byte* best_draws = nullptr;
};

// Writes what `count`, `num_top` and logprobs say is valid, in words.
__device__ void WriteResult(const RowResult& from, RowResult* to) {
  static_assert(offsetof(RowResult, top) % sizeof(uint32_t) == 0);
  static_assert(sizeof(TokenLogprob) == 2 * sizeof(uint32_t));
  const int32_t words =
      static_cast<int32_t>(offsetof(RowResult, top) / sizeof(uint32_t)) + 2 * from.num_top;
  const auto* source = reinterpret_cast<const uint32_t*>(&from);
  auto* target = reinterpret_cast<uint32_t*>(to);
  for (int32_t i = 0; i < words; ++i) target[i] = source[i];
}

__global__ void __launch_bounds__(kMaxThreads)
    AdvanceKernel(AdvanceArgs args, DrawArgs draw, StepState state) {
  LetNextStart();
  AwaitPrevious();
  const uint64_t step = *args.rings.step_counter;
  const int64_t bytes = static_cast<int64_t>(step % args.rings.size) * args.rings.result_bytes;
  auto* rows = reinterpret_cast<RowResult*>(
      reinterpret_cast<std::byte*>(args.rings.first_result.rows) + bytes);
  for (int32_t r = static_cast<int32_t>(threadIdx.x); r < state.header->num_rows; r += blockDim.x) {
    const int32_t l = state.rows[r].sample_index;
    if (draw.best != nullptr && l >= 0) TakeBest(draw, l, state.sampled[l]);
    RowResult result;
    AdvanceRow(state, r, result);
    WriteResult(result, &rows[r]);
  }
  // The release by one thread covers what the barrier has brought before it.
  __syncthreads();
  if (threadIdx.x != 0) return;
  auto* tag = reinterpret_cast<uint64_t*>(
      reinterpret_cast<std::byte*>(args.rings.first_result.step) + bytes);
  *args.rings.step_counter = step + 1;
  ::cuda::atomic_ref<uint64_t, ::cuda::thread_scope_system>(*tag).store(
      step + 1, ::cuda::memory_order_release);
}

void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const int32_t wanted = CeilDiv(context.shape.rows, kWarp) * kWarp;
  const AdvanceArgs& advance = ArgsAs<AdvanceArgs>(args);
  const DrawArgs draw = context.shape.draws ? MakeDrawArgs(advance.best_draws, state) : DrawArgs{};
  LaunchOverlapped(context, {.blocks = dim3(1), .threads = std::clamp(wanted, kWarp, kMaxThreads)},
                   AdvanceKernel, advance, draw, state);
}

}  // namespace

Result<BoundLaunch> BindAdvance(const OpRecord& op, BindContext& context) {
  return BoundLaunch{op.id, Launch,
                     context.Keep(AdvanceArgs{context.rings(), context.best_draws()})};
}

}  // namespace spry::cuda
