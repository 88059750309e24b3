#include "tests/checkpoint/heap_meter.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace spry {
namespace {

thread_local int64_t held = 0;
thread_local int64_t peak = 0;
thread_local int64_t count = 0;

void* Allocate(size_t bytes) {
  ++count;
  peak = std::max(peak, held + static_cast<int64_t>(bytes));
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p != nullptr) held += static_cast<int64_t>(::malloc_usable_size(p));
  return p;
}

void* AllocateOrThrow(size_t bytes) {
  void* p = Allocate(bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void Free(void* p) {
  if (p != nullptr) held -= static_cast<int64_t>(::malloc_usable_size(p));
  std::free(p);
}

}  // namespace

void ResetHeapMeter() { peak = held = count = 0; }
int64_t HeapPeakBytes() { return peak; }
int64_t HeapRequests() { return count; }

}  // namespace spry

void* operator new(size_t bytes) { return spry::AllocateOrThrow(bytes); }
void* operator new[](size_t bytes) { return spry::AllocateOrThrow(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return spry::Allocate(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return spry::Allocate(bytes); }
void operator delete(void* p) noexcept { spry::Free(p); }
void operator delete[](void* p) noexcept { spry::Free(p); }
void operator delete(void* p, size_t) noexcept { spry::Free(p); }
void operator delete[](void* p, size_t) noexcept { spry::Free(p); }
