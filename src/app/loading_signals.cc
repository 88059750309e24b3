#include "app/loading_signals.h"

#include <system_error>
#include <utility>

namespace spry {
namespace {

// Of a thread's own, to end its wait.
constexpr int kEndOfWait = SIGUSR1;

}  // namespace

LoadingSignals::LoadingSignals(std::function<void()> tidy_up) {
  sigemptyset(&signals_);
  for (const int signal : {SIGTERM, SIGINT, kEndOfWait}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
  try {
    thread_ = std::thread([this, tidy_up = std::move(tidy_up)] { Run(tidy_up); });
  } catch (const std::system_error&) {
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }
}

LoadingSignals::~LoadingSignals() {
  if (!thread_.joinable()) return;
  pthread_kill(thread_.native_handle(), kEndOfWait);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void LoadingSignals::Run(const std::function<void()>& tidy_up) const {
  int signal = 0;
  if (sigwait(&signals_, &signal) != 0 || signal == kEndOfWait) return;
  tidy_up();
  ::signal(signal, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  raise(signal);
}

}  // namespace spry
