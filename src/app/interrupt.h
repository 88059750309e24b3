// Ctrl-C as a question that a loop may ask. The flag behind it is the one mutable global of the
// program: a signal handler can reach nothing else.
#pragma once

namespace spry {

// From now on the first SIGINT only sets the flag; a second one ends the process.
void CatchInterrupt();
bool Interrupted();

}  // namespace spry
