#include "app/tail_control.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace spry {
namespace {

constexpr int64_t kMemoryWords = int64_t{32} << 20;  // 256 MiB, of all threads together
constexpr int64_t kProbeRounds = 1'000'000;
constexpr int kProbes = 10;
constexpr auto kRest = std::chrono::microseconds(500);

// How much work takes `target_us` if `amount` takes what the fastest of some runs takes.
template <typename Work>
int64_t Scaled(int64_t amount, double target_us, const Work& work) {
  double best_us = work();
  for (int i = 0; i < kProbes; ++i) best_us = std::min(best_us, work());
  return std::max<int64_t>(1, static_cast<int64_t>(amount * target_us / best_us));
}

}  // namespace

Result<std::unique_ptr<TailControl>> TailControl::Create(int threads, double target_us) {
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<WorkerPool> pool, WorkerPool::Create(threads));
  std::unique_ptr<TailControl> control(new TailControl(std::move(pool)));
  control->rounds_ = Scaled(control->rounds_, target_us, [&] { return control->Multiply(); });
  control->words_ = Scaled(control->words_, target_us, [&] { return control->Read(); });
  return control;
}

TailControl::TailControl(std::unique_ptr<WorkerPool> pool)
    : pool_(std::move(pool)),
      memory_(kMemoryWords, 1),
      rounds_(kProbeRounds),
      words_(PartWords()) {}

int64_t TailControl::PartWords() const { return kMemoryWords / pool_->size(); }

// The threads of a pool, the engine's or this one's, spin for a while after their work; a thread
// that is woken meanwhile finds no core free and shares one.
void TailControl::Run() {
  std::this_thread::sleep_for(kRest);
  arithmetic_us_.push_back(Multiply());
  memory_us_.push_back(Read());
  std::this_thread::sleep_for(kRest);
}

double TailControl::Time(WorkerPool::Job job) {
  const auto before = std::chrono::steady_clock::now();
  pool_->Run(job, this);
  const auto after = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::micro>(after - before).count();
}

// A chain of multiplications, each waiting for the one before.
double TailControl::Multiply() {
  return Time([](const void* context, Worker&) {
    const int64_t rounds = static_cast<const TailControl*>(context)->rounds_;
    uint64_t x = static_cast<uint64_t>(rounds);
    for (int64_t i = 0; i < rounds; ++i) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      asm volatile("" : "+r"(x));  // the chain is not to be folded away
    }
  });
}

double TailControl::Read() {
  const double us = Time([](const void* context, Worker& worker) {
    const auto& control = *static_cast<const TailControl*>(context);
    const int64_t part = control.PartWords();
    const uint64_t* words = control.memory_.data() + worker.index() * part;
    uint64_t sum = 0;
    for (int64_t left = control.words_, next = control.next_word_; left > 0; next = 0) {
      const int64_t count = std::min(left, part - next);
      for (const uint64_t* word = words + next; word != words + next + count; ++word) sum += *word;
      left -= count;
    }
    asm volatile("" : "+r"(sum));  // the work is not to be left out
  });
  next_word_ = (next_word_ + words_) % PartWords();
  return us;
}

}  // namespace spry
