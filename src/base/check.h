// CHECK: a programmer's error stops the process with its place. Never reachable by what a user or
// a client sends. Stays on in release. Includes nothing heavy, so that .cu files may use it.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace spry {

[[noreturn]] inline void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace spry

#define CHECK(condition)                                   \
  do {                                                     \
    if (!(condition)) [[unlikely]] {                       \
      ::spry::CheckFailed(#condition, __FILE__, __LINE__); \
    }                                                      \
  } while (false)
