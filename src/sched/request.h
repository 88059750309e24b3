// A request as the scheduler sees it. Owned by the Scheduler; others read it through events and
// plans.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
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
  // max_outputs as asked; the scheduler cuts it to the length limit. 0: the prompt is only judged.
  RowParams params;
  std::string cache_salt;
  int priority = 0;                         // lower values come first
  std::shared_ptr<const LogitRules> rules;  // null: none
};

enum class RequestState : uint8_t { kWaiting, kRunning };

// By priority, then by arrival. FCFS is the same order with all priorities equal.
struct Request;
struct ComesFirst {
  bool operator()(const Request* a, const Request* b) const;
};
using OrderedRequests = std::set<Request*, ComesFirst>;

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
  int64_t admitted_at = 0;    // first: what Schedule was told then
  RowParams params;
  // Leading positions of the prompt whose successor has been judged, for prompt log-probabilities.
  int num_judged = 0;
  std::shared_ptr<const LogitRules> rules;
  int rule_slot = -1;  // while running; -1: none

  // Hash chain over the full blocks of `tokens`, as far as somebody asked.
  std::vector<BlockHash> hashes;
  BlockHash root;

  bool admitted_before = false;

  int priority = 0;
  uint64_t arrival = 0;              // requests submitted before
  OrderedRequests::node_type place;  // in the waiting queue; kept here while it is not there

  int num_outputs() const { return static_cast<int>(tokens.size()) - num_prompt; }
};

inline bool ComesFirst::operator()(const Request* a, const Request* b) const {
  return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

// Whether log-probabilities of prompt tokens are still to be computed.
inline bool OwesTargets(const Request& request) {
  return request.params.num_prompt_logprobs >= 0 && request.num_judged < request.num_prompt - 1;
}

}  // namespace spry
