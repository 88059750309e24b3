// While a model is loaded SIGTERM and SIGINT end the process as they do without this, but not
// before something has been tidied up: nobody asks a flag meanwhile, and a signal handler could not
// reach what is to be tidied. A thread of its own waits for the signals, which the thread that made
// this, and those that it starts, do not take until this is gone.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>

namespace spry {

class LoadingSignals {
 public:
  // `tidy_up` is called on the other thread, once at most. Where the system refuses the thread the
  // signals act at once.
  explicit LoadingSignals(std::function<void()> tidy_up);
  // A signal that comes from here on acts as its handler says.
  ~LoadingSignals();
  LoadingSignals(const LoadingSignals&) = delete;
  LoadingSignals& operator=(const LoadingSignals&) = delete;

 private:
  void Run(const std::function<void()>& tidy_up) const;

  sigset_t signals_;
  sigset_t mask_before_;
  std::thread thread_;
};

}  // namespace spry
