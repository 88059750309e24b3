// An operator new that fails when told to, in one thread. (Apart from its users: a compiler that
// saw both would think of malloc and delete as mixed up.)
#pragma once

#include <cstdint>

namespace spry {

struct MemoryFailures {
  int64_t after = 0;  // allocations that succeed first
  int64_t left = 0;   // then so many fail
};
extern thread_local MemoryFailures memory_failures;

}  // namespace spry
