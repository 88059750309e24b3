// What the machine can do at most, measured: bytes read from memory and from caches, multiply-adds
// without memory, on one thread and on all. Benchmarks print their share of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/cpu/machine.h"

namespace spry {

struct ReadSpeed {
  std::string from;        // "L2", "L3", "memory"
  int64_t bytes_one = 0;   // read again and again by the one thread
  int64_t bytes_each = 0;  // by each of all; 0: their shares lie in a cache nearer to them
  double one_gb_per_s = 0;
  double all_gb_per_s = 0;
};

struct ProductSpeed {
  std::string isa;      // "avx512"
  std::string type;     // of the factors: "float32", "bfloat16", "int8"
  double one_tops = 0;  // 1e12 operations a second; a multiply-add is two
  double all_tops = 0;
};

struct MachineSpeed {
  int threads = 0;               // "all"
  std::vector<ReadSpeed> reads;  // nearest first, memory last
  std::vector<ProductSpeed> products;
};

// Takes a few seconds and 64 MiB a thread, at least 256 MiB. The best of several tries counts: what
// else runs on the machine only takes from it. ResourceExhausted when the system refuses.
Result<MachineSpeed> MeasureMachine(int threads, const CpuFeatures& features);

}  // namespace spry
