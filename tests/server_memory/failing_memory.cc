#include "tests/server_memory/failing_memory.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace spry {

thread_local MemoryFailures memory_failures;

namespace {

bool Fails() {
  MemoryFailures& failures = memory_failures;
  if (failures.left == 0) return false;
  if (failures.after > 0) {
    --failures.after;
    return false;
  }
  --failures.left;
  return true;
}

void* TryAllocate(size_t bytes, size_t align) {
  return Fails() ? nullptr : std::aligned_alloc(align, (bytes + align) / align * align);
}

void* Allocate(size_t bytes, size_t align) {
  void* memory = TryAllocate(bytes, align);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

constexpr size_t kAlign = alignof(std::max_align_t);

}  // namespace
}  // namespace spry

// All that base/allocation_counter.cc has, or the linker would take both.
using spry::Allocate;
using spry::kAlign;
using spry::TryAllocate;
using Align = std::align_val_t;
using NoThrow = std::nothrow_t;

void* operator new(size_t n) { return Allocate(n, kAlign); }
void* operator new[](size_t n) { return Allocate(n, kAlign); }
void* operator new(size_t n, Align a) { return Allocate(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, Align a) { return Allocate(n, static_cast<size_t>(a)); }
void* operator new(size_t n, const NoThrow&) noexcept { return TryAllocate(n, kAlign); }
void* operator new[](size_t n, const NoThrow&) noexcept { return TryAllocate(n, kAlign); }
void* operator new(size_t n, Align a, const NoThrow&) noexcept {
  return TryAllocate(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, Align a, const NoThrow&) noexcept {
  return TryAllocate(n, static_cast<size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, Align) noexcept { std::free(p); }
void operator delete[](void* p, Align) noexcept { std::free(p); }
void operator delete(void* p, size_t, Align) noexcept { std::free(p); }
void operator delete[](void* p, size_t, Align) noexcept { std::free(p); }
