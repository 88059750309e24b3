// What the calling thread takes from the heap: how "no huge allocation" and "no allocation for each
// token" are measured.
#pragma once

#include <cstdint>

namespace spry {

// Starts a measurement on this thread.
void ResetHeapMeter();

// The most bytes that this thread held since then beyond what it held then; a single request for
// memory counts even when it is refused.
int64_t HeapPeakBytes();

// Requests for memory since then.
int64_t HeapRequests();

}  // namespace spry
