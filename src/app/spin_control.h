// A control for tails: a fixed amount of arithmetic in registers, timed on the same thread beside
// the steps of an engine. It touches no memory and waits for nothing, so where its own p99 leaves
// its median, the machine was disturbed, and the tail of the steps says nothing about the engine.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace spry {

class SpinControl {
 public:
  // Takes about that long on this machine, as measured now.
  explicit SpinControl(double target_us) {
    constexpr int64_t kProbe = 1'000'000;
    double best_us = Time(kProbe);
    for (int i = 0; i < 10; ++i) best_us = std::min(best_us, Time(kProbe));
    rounds_ = std::max<int64_t>(1, static_cast<int64_t>(kProbe * target_us / best_us));
  }

  void Run() { times_us_.push_back(Time(rounds_)); }
  const std::vector<double>& times_us() const { return times_us_; }

 private:
  // A chain of multiplications, each waiting for the one before: frequency and stolen time show,
  // caches and neighbours' memory traffic do not.
  static double Time(int64_t rounds) {
    const auto before = std::chrono::steady_clock::now();
    uint64_t x = static_cast<uint64_t>(rounds);
    for (int64_t i = 0; i < rounds; ++i) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      asm volatile("" : "+r"(x));  // the chain is not to be folded away
    }
    const auto after = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::micro>(after - before).count();
  }

  int64_t rounds_ = 1;
  std::vector<double> times_us_;
};

}  // namespace spry
