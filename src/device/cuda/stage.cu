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
  slot.rule_copies = Advance(slot.rule_copies, bytes);
  return slot;
}

// `count` elements across the bus by the whole block, in vectors: the arrays of a rule slot are
// padded to more. A thread has several on their way at once.
template <typename T>
__device__ void CopyAcross(const T* from, T* to, int64_t count) {
  constexpr int kAtOnce = 8;
  const auto* source = reinterpret_cast<const uint4*>(from);
  auto* target = reinterpret_cast<uint4*>(to);
  static_assert(kRuleAlignBytes % sizeof(uint4) == 0);
  const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
  const int64_t vectors = (bytes + sizeof(uint4) - 1) / sizeof(uint4);
  const int64_t threads = blockDim.x;
  for (int64_t begin = threadIdx.x; begin < vectors; begin += kAtOnce * threads) {
    uint4 values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t i = begin + k * threads;
      if (i < vectors) values[k] = source[i];
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t i = begin + k * threads;
      if (i < vectors) target[i] = values[k];
    }
  }
}

// Brings the image of a rule slot into the slot, as far as its header says that it means something.
// Out of line: a step without rules should not fetch this code.
__device__ __noinline__ void CopyRules(std::byte* images, const StepState& state,
                                       SlotRuleCopy copy) {
  const RuleSlotLayout& layout = state.rule_layout;
  const RuleSlot image = MapRuleSlot(layout, images + copy.rule_slot * layout.image_bytes);
  const RuleSlot slot = state.rule_slot(copy.rule_slot);
  const int64_t words = MaskWords(layout.vocab_size);
  if (copy.allowed_only != 0) return CopyAcross(image.allowed, slot.allowed, words);
  const RuleHeader header = *image.header;
  if (threadIdx.x == 0) *slot.header = header;
  if (header.restricts != 0) CopyAcross(image.allowed, slot.allowed, words);
  if (header.penalises != 0) {
    CopyAcross(image.seen, slot.seen, words);
    CopyAcross(image.counts, slot.counts, layout.vocab_size);
  }
  CopyAcross(image.biases, slot.biases, header.num_biases);
  if (header.num_bad_words == 0) return;
  const int32_t tokens = image.bad_word_ends[header.num_bad_words - 1];
  CopyAcross(image.bad_word_ends, slot.bad_word_ends, header.num_bad_words);
  CopyAcross(image.bad_word_tokens, slot.bad_word_tokens, tokens);
  CopyAcross(image.recent, slot.recent, kMaxBadWordLength);
}

// Into the first cache of this multiprocessor: what StageRow and StageToken read of a row.
__device__ void FetchKept(const RowState& row) {
  [[maybe_unused]] int32_t ignored;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(ignored) : "l"(&row.length));
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(ignored) : "l"(&row.finished));
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
    StageKernel(StageArgs args, LaunchShape bucket, const __grid_constant__ StepState state) {
  LetNextStart();
  AwaitPrevious();
  __shared__ StepHeader header;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t threads = static_cast<int32_t>(blockDim.x);
  const int32_t before = thread < bucket.rows ? state.rows[thread].row : -1;
  StepSlot slot = SlotOfStep(args.rings);
  // Most rows are those of the step before: what is kept of them comes while the slot does.
  if (before >= 0) FetchKept(state.row_states[before]);
  // In the same trip across the bus as the header, before it says how many there are.
  __shared__ __align__(16) std::byte row_bytes[kMaxThreads * sizeof(SlotRow)];
  auto* rows = reinterpret_cast<SlotRow*>(row_bytes);
  SlotRow row;
  StepHeader counts;
  if (thread < bucket.rows) row = slot.rows[thread];
  if (thread == 0) counts = *slot.header;
  if (thread < bucket.rows) rows[thread] = row;
  if (thread == 0) {
    header = counts;
    *state.header = counts;
  }
  __syncthreads();
  if (bucket.rows <= threads) slot.rows = rows;
  for (int32_t i = thread; i < header.num_joins; i += threads) ApplyJoin(state, slot.joins[i]);
  for (int32_t i = thread; i < header.num_block_writes; i += threads) {
    ApplyBlockWrite(args.limits, state, slot.block_writes[i]);
  }
  for (int32_t i = 0; i < header.num_rule_copies; ++i) {
    CopyRules(args.rings.rule_images, state, slot.rule_copies[i]);
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
