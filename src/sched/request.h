// A request as the scheduler sees it. Owned by the Scheduler; others read it through events and
// plans.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/logit_rules.h"
#include "api/row.h"
#include "api/sampling_params.h"
#include "base/ids.h"
#include "kv/block_pool.h"

namespace spry {

// What is handed to Submit; already valid (the engine validates once, at the edge).
struct RequestSpec {
  RequestId id;
  std::vector<TokenId> prompt;  // not empty
  RowParams params;             // max_outputs as asked; the scheduler cuts it to the length limit
  std::string cache_salt;
  std::shared_ptr<const LogitRules> rules;  // null: none
};

enum class RequestState : uint8_t { kWaiting, kRunning };

// What every step reads comes first, in two cache lines.
struct alignas(64) Request {
  RequestId id;
  RequestState state = RequestState::kWaiting;
  bool holds = false;  // never has an output in flight when one is planned: its rules have a mask

  // While running.
  RowId row;
  int prefill_length = 0;  // tokens known at admission; beyond it the device feeds itself
  int num_launched = 0;    // tokens whose KV a launched step computes; >= committed ones
  int outputs_in_flight = 0;

  int num_prompt = 0;
  // The prompt, then committed outputs. Capacity for the longest possible result, like that of
  // `blocks` and `hashes`, is reserved at admission, so that a steady step never grows it.
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;  // while running
  int num_published = 0;        // leading blocks of `blocks` known to the prefix index

  int num_cached_tokens = 0;  // prompt tokens found in the cache at first admission
  RowParams params;
  std::shared_ptr<const LogitRules> rules;
  int rule_slot = -1;  // while running; -1: none

  // Hash chain over the full blocks of `tokens`, as far as somebody asked.
  std::vector<BlockHash> hashes;
  BlockHash root;

  bool admitted_before = false;

  // Neighbours in the waiting queue.
  Request* previous = nullptr;
  Request* next = nullptr;

  int num_outputs() const { return static_cast<int>(tokens.size()) - num_prompt; }
};

}  // namespace spry
