// One step, as plain data: which rows compute which tokens, and what changed since the last step.
// Made by the Scheduler, read by the runtime before any other call to the Scheduler (it points into
// requests, which a cancel or a commit may end). The vectors are reused from step to step and keep
// their capacity.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "api/logit_rules.h"
#include "api/row.h"
#include "base/ids.h"

namespace spry {

struct PlannedRow {
  RowId row;
  int start = 0;  // position of the first token (for decode rows the device's own length rules)
  int num_tokens = 0;   // 1 for decode rows
  bool decode = false;  // the device feeds the token it sampled itself
  int num_samples = 0;  // the step computes logits for that many tokens, the last ones
  bool draws = false;   // the last of these samples chooses the next token
  // Prompt rows only: [num_tokens], and the one behind them where it is known and judged.
  const TokenId* tokens = nullptr;
};

// A request takes a row: the device forgets what the row held.
struct RowJoin {
  RowId row;
  int num_outputs = 0;  // made before (after a preemption), which counts for limits and randomness
  const RowParams* params = nullptr;
  int rule_slot = -1;  // whose image is to be written from what follows; -1: none
  const LogitRules* rules = nullptr;
  std::span<const TokenId> prompt;
  std::span<const TokenId> outputs;
};

// The allowed ids of a rule slot are to be asked for again (its rules have a mask).
struct MaskRefresh {
  int rule_slot = 0;
  const LogitRules* rules = nullptr;
  std::span<const TokenId> outputs;  // all of them: none is in flight
};

// Entry `index` of a row's block table becomes `block`.
struct BlockWrite {
  RowId row;
  int index = 0;
  BlockId block;
};

struct BatchPlan {
  int num_tokens = 0;
  int num_prompt_tokens = 0;  // of these, those of prompt rows
  int num_samples = 0;
  int num_targets = 0;           // of these samples, those that judge a known token
  std::vector<PlannedRow> rows;  // decode rows first
  std::vector<RowJoin> joins;
  std::vector<MaskRefresh> mask_refreshes;
  std::vector<BlockWrite> block_writes;
};

// What a step gave.
struct StepResults {
  std::span<const RowResult> rows;          // in the order of the plan's rows
  std::span<const TokenLogprobs> logprobs;  // by sample, in the same order; valid if asked for
};

}  // namespace spry
