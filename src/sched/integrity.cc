#include <algorithm>

#include <fmt/format.h>

#include "sched/scheduler.h"

namespace spry {

Status Scheduler::CheckIntegrity() const {
  SPRY_RETURN_IF_ERROR(pool_.CheckIntegrity());
  SPRY_RETURN_IF_ERROR(CheckBlocks());
  SPRY_RETURN_IF_ERROR(CheckRows());
  return CheckCounts();
}

// A block's references are those of the running requests, and these have just the blocks they need.
Status Scheduler::CheckBlocks() const {
  std::vector<int> references(pool_.num_blocks());
  for (const Request* request : running_) {
    for (BlockId block : request->blocks) ++references[block.value()];
    const int needed = BlocksFor(std::max(request->prefill_length, request->num_launched));
    if (static_cast<int>(request->blocks.size()) != needed) {
      return Internal(fmt::format("request {} holds {} blocks, it needs {}", request->id.value(),
                                  request->blocks.size(), needed));
    }
  }
  for (int block = 0; block < pool_.num_blocks(); ++block) {
    if (pool_.references(BlockId(block)) != references[block]) {
      return Internal(fmt::format("block {} has {} references, running requests hold {}", block,
                                  pool_.references(BlockId(block)), references[block]));
    }
  }
  return {};
}

// Rows are free or owned, and each known request is either running in its row or waiting.
Status Scheduler::CheckRows() const {
  for (const Request* request : running_) {
    if (rows_[request->row.value()].owner != request) {
      return Internal(fmt::format("running request {} does not own row {}", request->id.value(),
                                  request->row.value()));
    }
  }
  if (!std::ranges::is_sorted(running_, ComesFirst())) {
    return Internal("running requests are out of order");
  }
  for (RowId row : free_rows_) {
    if (rows_[row.value()].owner != nullptr) {
      return Internal(fmt::format("row {} is free and has an owner", row.value()));
    }
  }
  if (running_.size() + free_rows_.size() != rows_.size()) {
    return Internal(fmt::format("{} rows are in use and {} free, of {}", running_.size(),
                                free_rows_.size(), rows_.size()));
  }
  int num_waiting = 0;
  for (const Request* request : waiting_.requests()) {
    if (request->state != RequestState::kWaiting || !request->blocks.empty()) {
      return Internal(fmt::format("request {} waits and runs at once", request->id.value()));
    }
    ++num_waiting;
  }
  if (num_waiting != waiting_.size() || num_waiting + running_.size() != requests_.size()) {
    return Internal(fmt::format("{} requests wait (counted: {}) and {} run, of {}", num_waiting,
                                waiting_.size(), running_.size(), requests_.size()));
  }
  return {};
}

// What the steps in flight will bring is what each request counts on.
Status Scheduler::CheckCounts() const {
  std::vector<int> in_flight(rows_.size());
  for (int i = 0; i < steps_.size(); ++i) {
    for (const LaunchedRow& launched : steps_[i]) {
      const Row& row = rows_[launched.row.value()];
      const bool live = row.owner != nullptr && row.generation == launched.generation;
      if (live && launched.draws) ++in_flight[launched.row.value()];
    }
  }
  for (const Request* request : running_) {
    const int found = in_flight[request->row.value()];
    if (request->outputs_in_flight != found) {
      return Internal(fmt::format("request {} counts {} outputs in flight, the steps hold {}",
                                  request->id.value(), request->outputs_in_flight, found));
    }
    const int num_tokens = static_cast<int>(request->tokens.size()) + request->outputs_in_flight;
    if (request->num_launched >= num_tokens) {
      return Internal(fmt::format("request {} computed {} tokens of {}", request->id.value(),
                                  request->num_launched, num_tokens));
    }
    // What a judged prompt's last step chooses is counted like an output, though nobody gets it.
    const int most = std::max(request->params.max_outputs, 1);
    if (request->num_outputs() + request->outputs_in_flight > most) {
      return Internal(fmt::format("request {} has {} outputs and {} in flight, at most {} asked",
                                  request->id.value(), request->num_outputs(),
                                  request->outputs_in_flight, request->params.max_outputs));
    }
  }
  return {};
}

}  // namespace spry
