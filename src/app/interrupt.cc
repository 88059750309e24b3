#include "app/interrupt.h"

#include <csignal>

namespace spry {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

}  // namespace

void CatchInterrupt(SecondInterrupt second) {
  struct sigaction inherited = {};
  sigaction(SIGINT, nullptr, &inherited);
  if (inherited.sa_handler == SIG_IGN) return;  // a shell's background job
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = second == SecondInterrupt::kEndsProcess ? SA_RESETHAND : 0;
  sigaction(SIGINT, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

void ForgetInterrupt() { interrupted = 0; }

}  // namespace spry
