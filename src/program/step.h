// What passes between host and device each step, and what stays on the device between steps. Plain
// structs over flat memory with one layout for every device; kernels may include this.
//
//   host                         device (fixed addresses)
//   StepSlot (ring)  --stage-->  StepState: rows, token ids, positions ...  --ops-->  sampled
//   StepResult (ring) <--advance--  RowState (permanent rows)  <----------------------+
//
// The host writes a slot, launches, and does not touch the slot again until that step has been
// consumed. `header.step` of a result is written last, so a host that sees it sees the whole
// result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "api/row.h"
#include "base/ids.h"

namespace spry {

// The sizes that are fixed when a model is compiled. Counts, unless the name says otherwise.
struct StepLimits {
  int32_t max_tokens = 0;   // T of the largest step
  int32_t max_rows = 0;     // permanent rows = R of the largest step
  int32_t max_samples = 0;  // L of the largest step
  int32_t max_blocks_per_row = 0;
  int32_t max_block_writes = 0;  // per step
  int32_t block_size = 16;       // tokens
  int32_t num_blocks = 0;        // of the KV pool
  int32_t ring_size = 2;         // slots = most steps in flight + 1
};

struct StepHeader {
  uint64_t step = 0;
  int32_t num_tokens = 0;   // T
  int32_t num_rows = 0;     // R
  int32_t num_samples = 0;  // L
  int32_t num_joins = 0;
  int32_t num_block_writes = 0;
  int32_t padding = 0;
};

// One row of a step's batch. Its tokens are [query_start, query_start + num_tokens) of the step.
struct SlotRow {
  int32_t row = 0;  // the permanent row
  int32_t query_start = 0;
  int32_t num_tokens = 0;
  int32_t start = 0;          // position of the first token; decode rows: the device's length rules
  int32_t sample_index = -1;  // l in [0, L) of the first sample
  int32_t num_samples = 0;    // logits are wanted of the row's last num_samples tokens
  // The token that follows the row's last one, where a prompt goes on: it is only judged. -1: the
  // last sample chooses a token.
  int32_t next_token = -1;
  int32_t decode = 0;  // 1: the token is the row's last one, not in the slot
};

struct SlotJoin {
  int32_t row = 0;
  int32_t num_outputs = 0;
  RowParams params;
};

struct SlotBlockWrite {
  int32_t row = 0;
  int32_t index = 0;
  int32_t block = 0;
};

// A view of one slot.
struct StepSlot {
  StepHeader* header = nullptr;
  SlotRow* rows = nullptr;                 // [max_rows]
  int32_t* token_ids = nullptr;            // [max_tokens]; decode rows' entries are not read
  SlotJoin* joins = nullptr;               // [max_rows]
  SlotBlockWrite* block_writes = nullptr;  // [max_block_writes]
};

// Lives as long as a request keeps its row.
struct RowState {
  RowParams params;
  int32_t length = 0;      // tokens whose KV is in the cache
  int32_t last_token = 0;  // sampled, not yet computed
  int32_t num_outputs = 0;
  int32_t finished = 0;  // 1: padding until the next join
};

// A SlotRow with the device's own knowledge filled in.
struct StagedRow {
  int32_t row = 0;
  int32_t query_start = 0;
  int32_t num_tokens = 0;
  int32_t start = 0;
  int32_t sample_index = -1;
  int32_t num_samples = 0;
  int32_t next_token = -1;
  int32_t live = 0;  // 0: padding; write_kv skips it and its results mean nothing
};

// What the sample op leaves for advance.
struct Sampled {
  int32_t token = 0;
  int32_t saw_nan = 0;
  TokenLogprobs logprobs;  // where they are asked for
};

// A view of the device's step memory. Pointers are the fixed addresses that kernels are bound to.
struct StepState {
  StepHeader* header = nullptr;      // of the step being computed
  RowState* row_states = nullptr;    // [max_rows], by permanent row
  int32_t* block_tables = nullptr;   // [max_rows, max_blocks_per_row], by permanent row
  StagedRow* rows = nullptr;         // [R]
  int32_t* token_ids = nullptr;      // [T]
  int32_t* positions = nullptr;      // [T]
  int32_t* token_rows = nullptr;     // [T]: r of the token's row; -1: padding
  int32_t* token_slots = nullptr;    // [T]: the token's permanent row; -1: padding
  int32_t* sample_tokens = nullptr;  // [L]: t of the token whose logits are wanted
  int32_t* sample_rows = nullptr;    // [L]: r
  // [L]: the known next token, whose log-probabilities are wanted; -1: a token is to be chosen
  int32_t* sample_targets = nullptr;
  Sampled* sampled = nullptr;  // [L]
};

// A view of one entry of the result ring.
struct StepResult {
  uint64_t* step = nullptr;           // 1 + the step that wrote it, written last; 0: none yet
  RowResult* rows = nullptr;          // [max_rows], in the order of the step's rows
  TokenLogprobs* logprobs = nullptr;  // [max_samples]; written where they are asked for
};

// Bytes of each, and views over that many bytes (aligned to 64).
int64_t StepSlotBytes(const StepLimits& limits);
StepSlot MapStepSlot(const StepLimits& limits, std::byte* base);
int64_t StepStateBytes(const StepLimits& limits);
StepState MapStepState(const StepLimits& limits, std::byte* base);
int64_t StepResultBytes(const StepLimits& limits);
StepResult MapStepResult(const StepLimits& limits, std::byte* base);

// All of it in one region, for a device that computes in the host's memory: the state, then slot
// and result of each ring entry.
struct StepMemory {
  StepState state;
  std::vector<StepSlot> slots;      // [ring_size]
  std::vector<StepResult> results;  // [ring_size]
};
int64_t StepMemoryBytes(const StepLimits& limits);
StepMemory MapStepMemory(const StepLimits& limits, std::byte* base);

}  // namespace spry
