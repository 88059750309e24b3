// How much memory the bodies of requests may take, all connections of a server together: many
// clients that send large ones at once must not bring the machine down. Counted is what has been
// received, from a body's first byte until its last holder drops it.
// Large answers have a budget of their own, from when they are made until they have been sent.
//
// Threads: one takes (the I/O thread), any may give back.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace spry {

// Bodies up to this size may use all of the budget, larger ones three quarters: who fills those
// with slow uploads does not lock out usual requests.
inline constexpr int64_t kSmallBodyBytes = 64 << 10;

class BodyBudget {
 public:
  explicit BodyBudget(int64_t limit) : limit_(limit) {}

  // Whether a body that has `size` bytes may have `more`.
  bool HasRoom(int64_t size, int64_t more) const {
    const int64_t reserved = size + more > kSmallBodyBytes ? limit_ / 4 : 0;
    return held_.load(std::memory_order_relaxed) + more <= limit_ - reserved;
  }

  int64_t limit() const { return limit_; }

 private:
  friend class BodyLease;
  const int64_t limit_;
  std::atomic<int64_t> held_{0};
};

// The part of one body; stays beside it.
class BodyLease {
 public:
  BodyLease() = default;
  explicit BodyLease(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  ~BodyLease() { GiveBack(); }
  BodyLease(BodyLease&& other) noexcept
      : budget_(std::move(other.budget_)), size_(std::exchange(other.size_, 0)) {}
  BodyLease& operator=(BodyLease&& other) noexcept {
    if (this == &other) return *this;
    GiveBack();
    budget_ = std::move(other.budget_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }

  bool HasRoom(int64_t more) const { return budget_->HasRoom(size_, more); }
  // Takes `more` bytes; false, and takes none, when there is no room.
  bool Grow(int64_t more) {
    if (!HasRoom(more)) return false;
    budget_->held_.fetch_add(more, std::memory_order_relaxed);
    size_ += more;
    return true;
  }
  // Has `size` bytes from now on; false, and has what it had, when there is no room.
  bool Resize(int64_t size) {
    if (size >= size_) return Grow(size - size_);
    budget_->held_.fetch_sub(size_ - size, std::memory_order_relaxed);
    size_ = size;
    return true;
  }

 private:
  void GiveBack() {
    if (size_ > 0) budget_->held_.fetch_sub(size_, std::memory_order_relaxed);
    size_ = 0;
  }

  std::shared_ptr<BodyBudget> budget_;  // null: nothing can be taken
  int64_t size_ = 0;
};

}  // namespace spry
