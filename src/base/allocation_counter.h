// Counts heap allocations per thread: how "a steady step allocates nothing" is shown. Programs that
// link allocation_counter.cc (the spry program and the tests do) count every operator new.
#pragma once

#include <cstdint>

namespace spry {

// Allocations made by the calling thread since it started.
uint64_t ThreadAllocations();

}  // namespace spry
