// stage (ops/stage.h): reads the step's slot, from the card where advance has brought it there
// (early_slot.cuh), else across the bus. One block, because rows must wait for all joins; a decode
// step moves a few hundred bytes.
#include <algorithm>

#include "device/cuda/early_slot.cuh"
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
  // In one trip: which step it is, and the slot, if it is the early one.
  const StepRings& rings = args.rings;
  const bool takes_row = thread < bucket.rows;
  const StepCounters counters = LoadNow(rings.counters);
  StepSlot slot = rings.early_slot;
  SlotRow row;
  StepHeader counts;
  int32_t before = 0;
  if (takes_row) row = LoadNow(&slot.rows[thread]);
  if (takes_row) before = LoadNow(&state.rows[thread]).row;
  if (thread == 0) counts = LoadNow(slot.header);
  if (counters.early != counters.step + 1) {
    // Most rows are those of the step before: what is kept of them comes while the slot does, whose
    // rows come with its header, before that says how many there are.
    if (takes_row) FetchKept(state.row_states[before]);
    slot = SlotOfStep(rings, counters.step);
    if (takes_row) row = LoadNow(&slot.rows[thread]);
    if (thread == 0) counts = LoadNow(slot.header);
  } else if (takes_row) {
    FetchKept(state.row_states[row.row]);
  }
  __shared__ __align__(16) std::byte row_bytes[kMaxThreads * sizeof(SlotRow)];
  auto* rows = reinterpret_cast<SlotRow*>(row_bytes);
  if (takes_row) rows[thread] = row;
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
