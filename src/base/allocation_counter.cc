#include "base/allocation_counter.h"

#include <cstdlib>
#include <new>

namespace spry {
namespace {
thread_local uint64_t thread_allocations = 0;
}  // namespace

uint64_t ThreadAllocations() { return thread_allocations; }

namespace {

void* Allocate(size_t bytes) {
  ++thread_allocations;
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void* Allocate(size_t bytes, std::align_val_t align) {
  ++thread_allocations;
  const size_t a = static_cast<size_t>(align);
  void* p = std::aligned_alloc(a, (bytes + a - 1) / a * a);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace
}  // namespace spry

void* operator new(size_t bytes) { return spry::Allocate(bytes); }
void* operator new[](size_t bytes) { return spry::Allocate(bytes); }
void* operator new(size_t bytes, std::align_val_t align) { return spry::Allocate(bytes, align); }
void* operator new[](size_t bytes, std::align_val_t align) { return spry::Allocate(bytes, align); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
