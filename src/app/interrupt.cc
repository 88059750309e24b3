#include "app/interrupt.h"

#include <csignal>

namespace spry {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void OnInterrupt(int) { interrupted = 1; }

}  // namespace

void CatchInterrupt() {
  struct sigaction inherited = {};
  sigaction(SIGINT, nullptr, &inherited);
  if (inherited.sa_handler == SIG_IGN) return;  // a shell's background job
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
}

bool Interrupted() { return interrupted != 0; }

}  // namespace spry
