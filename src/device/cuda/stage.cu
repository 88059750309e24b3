// stage (ops/stage.h): reads the step's slot across the bus. One block, because rows must wait for
// all joins; a decode step moves a few hundred bytes.
#include <algorithm>

#include "device/cuda/element.cuh"
#include "device/cuda/overlap.cuh"
#include "ops/stage.h"

namespace spry::cuda {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kWarp = 32;

struct StageArgs {
  StepRings rings;
  StepLimits limits;
};

template <typename T>
__device__ T* Advance(T* at, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(at) + bytes);
}

__device__ StepSlot SlotOfStep(const StepRings& rings) {
  const int64_t bytes = static_cast<int64_t>(*rings.step_counter % rings.size) * rings.slot_bytes;
  StepSlot slot = rings.first_slot;
  slot.header = Advance(slot.header, bytes);
  slot.rows = Advance(slot.rows, bytes);
  slot.token_ids = Advance(slot.token_ids, bytes);
  slot.joins = Advance(slot.joins, bytes);
  slot.block_writes = Advance(slot.block_writes, bytes);
  return slot;
}

// Rows and tokens of any step. `slot` is where the rows may be read more than once.
__device__ void StageAny(const StepHeader& header, const StepSlot& slot, const StepState& state) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t threads = static_cast<int32_t>(blockDim.x);
  bool is_long = false;
  for (int32_t r = thread; r < header.num_rows; r += threads) {
    is_long |= StageRow(state, slot.rows[r], r).num_tokens > kWarp;
  }
  const bool any_long = __syncthreads_or(is_long) != 0;
  // A warp takes each short row, the whole block each long one.
  const int32_t lane = thread % kWarp;
  for (int32_t r = thread / kWarp; r < header.num_rows; r += threads / kWarp) {
    const StagedRow row = state.rows[r];
    if (row.num_tokens <= kWarp && lane < row.num_tokens) StageToken(state, slot, row, r, lane);
  }
  for (int32_t r = 0; any_long && r < header.num_rows; ++r) {
    const StagedRow row = state.rows[r];
    if (row.num_tokens <= kWarp) continue;
    for (int32_t i = thread; i < row.num_tokens; i += threads) StageToken(state, slot, row, r, i);
  }
}

// `bucket` has the counts that the grids of this step are made for.
__global__ void __launch_bounds__(kMaxThreads)
    StageKernel(StageArgs args, LaunchShape bucket, StepState state) {
  LetNextStart();
  AwaitPrevious();
  StepSlot slot = SlotOfStep(args.rings);
  __shared__ StepHeader header;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t threads = static_cast<int32_t>(blockDim.x);
  // In the same trip across the bus as the header, before it says how many there are.
  __shared__ __align__(16) std::byte row_bytes[kMaxThreads * sizeof(SlotRow)];
  auto* rows = reinterpret_cast<SlotRow*>(row_bytes);
  if (thread < bucket.rows) rows[thread] = slot.rows[thread];
  if (thread == 0) {
    header = *slot.header;
    *state.header = header;
  }
  __syncthreads();
  if (bucket.rows <= threads) slot.rows = rows;
  for (int32_t i = thread; i < header.num_joins; i += threads) ApplyJoin(state, slot.joins[i]);
  for (int32_t i = thread; i < header.num_block_writes; i += threads) {
    ApplyBlockWrite(args.limits, state, slot.block_writes[i]);
  }
  // Kernels that size themselves by the bucket see padding beyond the true counts.
  for (int32_t t = header.num_tokens + thread; t < bucket.tokens; t += threads) {
    state.token_slots[t] = -1;
    state.token_rows[t] = -1;
  }
  __syncthreads();
  if (!bucket.decode || bucket.rows > threads) return StageAny(header, slot, state);
  if (thread < header.num_rows) {
    StageToken(state, slot, StageRow(state, slot.rows[thread], thread), thread, 0);
  }
}

void Launch(const void* args, const StepState& state, const LaunchContext& context) {
  const LaunchShape& shape = context.shape;
  // A small block starts and waits for itself sooner.
  const int32_t wanted = shape.decode ? CeilDiv(shape.rows, kWarp) * kWarp : kMaxThreads;
  LaunchOverlapped(context, {.blocks = dim3(1), .threads = std::clamp(wanted, kWarp, kMaxThreads)},
                   StageKernel, ArgsAs<StageArgs>(args), shape, state);
}

}  // namespace

Result<BoundLaunch> BindStage(const OpRecord& op, BindContext& context) {
  return BoundLaunch{op.id, Launch, context.Keep(StageArgs{context.rings(), context.limits()})};
}

}  // namespace spry::cuda
