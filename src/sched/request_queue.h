// The waiting requests in the order in which they may run. Joining and leaving anywhere is
// O(log n); a request that leaves keeps its node, so that coming back never allocates. Owns none.
#pragma once

#include <utility>

#include "sched/request.h"

namespace spry {

class RequestQueue {
 public:
  bool empty() const { return requests_.empty(); }
  int size() const { return static_cast<int>(requests_.size()); }
  Request* front() const { return *requests_.begin(); }
  const OrderedRequests& requests() const { return requests_; }

  // Allocates for a request that was never here before.
  void Insert(Request& request) {
    if (request.place.empty()) {
      requests_.insert(&request);
    } else {
      requests_.insert(std::move(request.place));
    }
  }

  void Remove(Request& request) { request.place = requests_.extract(&request); }

 private:
  OrderedRequests requests_;
};

}  // namespace spry
