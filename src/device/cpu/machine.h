// What this process may use of the machine it runs on. Paths are parameters so that tests can show
// other machines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spry {

struct CpuFeatures {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, DQ, VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx = false;  // tiles of bf16 and int8, beside all of the above, and leave to use them
};
// Asks the system for the state of AMX, which it gives a process only on request.
CpuFeatures DetectCpuFeatures();

// The logical CPUs that the scheduler may put this process on.
std::vector<int> AllowedCpus();

// Physical cores among `cpus`; a CPU whose topology is unknown counts as a core.
int CountPhysicalCores(std::span<const int> cpus, const std::string& topology_root);
inline constexpr char kTopologyRoot[] = "/sys/devices/system/cpu";

// The data caches of the first CPU, nearest first; none where the system does not tell.
struct CacheLevel {
  std::string name;  // "L2"
  int64_t bytes = 0;
  int sharers = 1;  // CPUs that have it in common
};
std::vector<CacheLevel> ReadCaches(const std::string& topology_root);

// The tightest cgroup limits (v1 and v2) on this process, in CPUs and in bytes; nothing without a
// limit.
struct CgroupLimits {
  std::optional<double> cpus;
  std::optional<int64_t> memory_bytes;
  std::optional<int64_t> memory_used_bytes;  // in the group that has the tightest memory limit
};
CgroupLimits ReadCgroupLimits(const std::string& self_cgroup, const std::string& cgroup_root);
inline constexpr char kSelfCgroup[] = "/proc/self/cgroup";
inline constexpr char kCgroupRoot[] = "/sys/fs/cgroup";

struct MemoryInfo {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;
};
MemoryInfo ReadMemoryInfo(const std::string& meminfo);
inline constexpr char kMemInfo[] = "/proc/meminfo";

}  // namespace spry
