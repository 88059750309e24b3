// Ctrl-C as a question that a loop may ask. The flag behind it is a mutable global, since a signal
// handler can reach nothing else.
#pragma once

namespace spry {

enum class SecondInterrupt {
  kEndsProcess,  // whoever asks too late is ended by the system
  kIsCaught,     // for a program that goes on: each one only sets the flag
};

// From now on SIGINT sets the flag and makes a blocked read of a terminal return.
void CatchInterrupt(SecondInterrupt second);
bool Interrupted();
void ForgetInterrupt();

}  // namespace spry
