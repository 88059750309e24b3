// Counts heap allocations per thread and in all: how "a steady step allocates nothing" is shown.
// Programs that link allocation_counter.cc (the spry program and the tests do) count every operator
// new.
#pragma once

#include <cstdint>

namespace spry {

// Allocations made by the calling thread since it started.
uint64_t ThreadAllocations();

// Allocations made by all threads: for code that computes on threads of its own.
uint64_t ProcessAllocations();

}  // namespace spry
