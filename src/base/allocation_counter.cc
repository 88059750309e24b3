#include "base/allocation_counter.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace spry {
namespace {

thread_local uint64_t thread_allocations = 0;
std::atomic<uint64_t> process_allocations{0};

void Count() {
  ++thread_allocations;
  process_allocations.fetch_add(1, std::memory_order_relaxed);
}

void* TryAllocate(size_t bytes) {
  Count();
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* TryAllocate(size_t bytes, std::align_val_t align) {
  Count();
  const size_t a = static_cast<size_t>(align);
  return std::aligned_alloc(a, (bytes + a - 1) / a * a);
}

template <typename... Size>
void* Allocate(Size... size) {
  void* p = TryAllocate(size...);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace

uint64_t ThreadAllocations() { return thread_allocations; }
uint64_t ProcessAllocations() { return process_allocations.load(std::memory_order_relaxed); }

}  // namespace spry

void* operator new(size_t bytes) { return spry::Allocate(bytes); }
void* operator new[](size_t bytes) { return spry::Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t align) { return spry::Allocate(bytes, align); }
void* operator new[](size_t bytes, std::align_val_t align) { return spry::Allocate(bytes, align); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return spry::TryAllocate(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return spry::TryAllocate(bytes);
}
void* operator new(size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return spry::TryAllocate(bytes, align);
}
void* operator new[](size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return spry::TryAllocate(bytes, align);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
