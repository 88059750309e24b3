// The waiting requests in order. The links lie in the requests, so joining and leaving anywhere is
// O(1) and never allocates. Owns nothing.
#pragma once

#include "sched/request.h"

namespace spry {

class RequestQueue {
 public:
  bool empty() const { return size_ == 0; }
  int size() const { return size_; }
  Request* front() const { return front_; }

  void PushBack(Request& request) { Insert(request, back_, nullptr); }
  void PushFront(Request& request) { Insert(request, nullptr, front_); }

  void Remove(Request& request) {
    (request.previous == nullptr ? front_ : request.previous->next) = request.next;
    (request.next == nullptr ? back_ : request.next->previous) = request.previous;
    request.previous = request.next = nullptr;
    --size_;
  }

 private:
  void Insert(Request& request, Request* previous, Request* next) {
    request.previous = previous;
    request.next = next;
    (previous == nullptr ? front_ : previous->next) = &request;
    (next == nullptr ? back_ : next->previous) = &request;
    ++size_;
  }

  Request* front_ = nullptr;
  Request* back_ = nullptr;
  int size_ = 0;
};

}  // namespace spry
