// Controls for tails: fixed work, timed on the same thread beside the steps of an engine, that
// nothing of the engine can slow. Where the p99 of one leaves its median, the machine was disturbed
// and the tail of the steps says nothing about the engine. Two kinds, since a machine shares both:
// arithmetic in registers (frequency, stolen time) and reads of memory (bandwidth that neighbours
// take; a decode step on a CPU is little else).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace spry {

class TailControl {
 public:
  // Each kind takes about that long on this machine, as measured now.
  explicit TailControl(double target_us) : memory_(kMemoryWords, 1) {
    constexpr int64_t kProbe = 1'000'000;
    arithmetic_rounds_ = Scale(kProbe, target_us, [] { return Multiply(kProbe); });
    memory_words_ = Scale(kMemoryWords, target_us, [this] { return Read(kMemoryWords); });
  }

  void Run() {
    arithmetic_us_.push_back(Multiply(arithmetic_rounds_));
    memory_us_.push_back(Read(memory_words_));
  }
  const std::vector<double>& arithmetic_us() const { return arithmetic_us_; }
  const std::vector<double>& memory_us() const { return memory_us_; }

 private:
  static constexpr int64_t kMemoryWords = int64_t{32} << 20;  // 256 MiB: more than any cache holds

  template <typename Work>
  static int64_t Scale(int64_t amount, double target_us, const Work& work) {
    double best_us = work();
    for (int i = 0; i < 10; ++i) best_us = std::min(best_us, work());
    return std::max<int64_t>(1, static_cast<int64_t>(amount * target_us / best_us));
  }

  template <typename Work>
  static double Time(const Work& work) {
    const auto before = std::chrono::steady_clock::now();
    uint64_t result = work();
    asm volatile("" : "+r"(result));  // the work is not to be left out
    const auto after = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::micro>(after - before).count();
  }

  // A chain of multiplications, each waiting for the one before.
  static double Multiply(int64_t rounds) {
    return Time([rounds] {
      uint64_t x = static_cast<uint64_t>(rounds);
      for (int64_t i = 0; i < rounds; ++i) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(x));  // the chain is not to be folded away
      }
      return x;
    });
  }

  // Goes on where the last call ended, around the buffer.
  double Read(int64_t words) {
    return Time([this, words] {
      uint64_t sum = 0;
      for (int64_t left = words; left > 0;) {
        const int64_t count = std::min(left, kMemoryWords - next_);
        for (const uint64_t* word = &memory_[next_]; word != &memory_[next_] + count; ++word) {
          sum += *word;
        }
        next_ = (next_ + count) % kMemoryWords;
        left -= count;
      }
      return sum;
    });
  }

  std::vector<uint64_t> memory_;
  int64_t next_ = 0;
  int64_t arithmetic_rounds_ = 1;
  int64_t memory_words_ = 1;
  std::vector<double> arithmetic_us_, memory_us_;
};

}  // namespace spry
