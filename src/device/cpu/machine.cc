#include "device/cpu/machine.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

namespace spry {
namespace {

constexpr int kMaxCpus = 8192;

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Nothing for "max", for a missing file, and for what is no number.
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::istringstream line(FirstLine(path));
  int64_t number = 0;
  if (line >> number) return number;
  return std::nullopt;
}

// "150000 100000" is 1.5; "max 100000" is no limit.
std::optional<double> ReadCpuMax(const std::string& path) {
  std::istringstream line(FirstLine(path));
  double quota = 0, period = 0;
  if (line >> quota >> period && period > 0) return quota / period;
  return std::nullopt;
}

// The process's group in the v2 hierarchy: the line "0::/path".
std::optional<std::string> OwnGroup(const std::string& self_cgroup) {
  std::ifstream file(self_cgroup);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return std::nullopt;
}

// "32768K" or "32M".
int64_t ParseCacheBytes(const std::string& text) {
  std::istringstream fields(text);
  int64_t count = 0;
  char unit = 0;
  fields >> count >> unit;
  return unit == 'K' ? count << 10 : unit == 'M' ? count << 20 : count;
}

// CPUs in a list such as "0-3,8".
int CountListed(const std::string& list) {
  std::istringstream ranges(list);
  int count = 0;
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0, last = 0;
    const int found = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    count += found == 2 ? last - first + 1 : found;
  }
  return count;
}

// clang's __builtin_cpu_supports does not know it.
bool HasF16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Leaf 7 of cpuid; __builtin_cpu_supports of gcc 12 and clang 14 does not know AMX.
bool HasAmx() {
  constexpr unsigned int kBf16 = 1u << 22, kTiles = 1u << 24, kInt8 = 1u << 25;
  constexpr unsigned int kAvx512Fp16 = 1u << 23;  // no machine has AMX without it
  constexpr unsigned int kAll = kBf16 | kTiles | kInt8 | kAvx512Fp16;
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kAll) != kAll) return false;
  // arch_prctl(2): leave for the tiles' data, for all threads from now on.
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

CpuFeatures DetectCpuFeatures() {
  __builtin_cpu_init();
  CpuFeatures features;
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  features.avx512_vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
  features.amx = features.avx512_vnni && features.avx512_bf16 && HasAmx();
  return features;
}

std::vector<int> AllowedCpus() {
  std::array<cpu_set_t, kMaxCpus / CPU_SETSIZE> set = {};
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), set.data()) != 0) return {0};
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof(set), set.data())) cpus.push_back(cpu);
  }
  return cpus;
}

int CountPhysicalCores(std::span<const int> cpus, const std::string& topology_root) {
  // Threads of one core print the same list of siblings.
  std::set<std::string> cores;
  int unknown = 0;
  for (const int cpu : cpus) {
    const std::string siblings =
        FirstLine(topology_root + "/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    if (siblings.empty()) {
      ++unknown;
    } else {
      cores.insert(siblings);
    }
  }
  return static_cast<int>(cores.size()) + unknown;
}

std::vector<CacheLevel> ReadCaches(const std::string& topology_root) {
  std::vector<CacheLevel> caches;
  for (int i = 0;; ++i) {
    const std::string folder = fmt::format("{}/cpu0/cache/index{}", topology_root, i);
    const std::string level = FirstLine(folder + "/level");
    if (level.empty()) break;
    const int64_t bytes = ParseCacheBytes(FirstLine(folder + "/size"));
    if (FirstLine(folder + "/type") == "Instruction" || bytes == 0) continue;
    caches.push_back({.name = "L" + level,
                      .bytes = bytes,
                      .sharers = std::max(1, CountListed(FirstLine(folder + "/shared_cpu_list")))});
  }
  std::ranges::sort(caches, {}, &CacheLevel::bytes);
  return caches;
}

CgroupLimits ReadCgroupLimits(const std::string& self_cgroup, const std::string& cgroup_root) {
  CgroupLimits limits;
  std::optional<std::string> group = OwnGroup(self_cgroup);
  if (!group) return limits;
  // A limit holds for all groups below it. In a container the own group may look like "/".
  while (true) {
    const std::string folder = cgroup_root + *group + (group->ends_with("/") ? "" : "/");
    if (const auto cpus = ReadCpuMax(folder + "cpu.max"); cpus) {
      limits.cpus = std::min(*cpus, limits.cpus.value_or(*cpus));
    }
    if (const auto bytes = ReadNumber(folder + "memory.max"); bytes) {
      if (!limits.memory_bytes || *bytes < *limits.memory_bytes) {
        limits.memory_bytes = bytes;
        limits.memory_used_bytes = ReadNumber(folder + "memory.current");
      }
    }
    if (*group == "/") return limits;
    const size_t slash = group->rfind('/');
    *group = slash == 0 ? "/" : group->substr(0, slash);
  }
}

MemoryInfo ReadMemoryInfo(const std::string& meminfo) {
  MemoryInfo info;
  std::ifstream file(meminfo);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string key;
    int64_t kilobytes = 0;
    fields >> key >> kilobytes;
    if (key == "MemTotal:") info.total_bytes = kilobytes * 1024;
    if (key == "MemAvailable:") info.available_bytes = kilobytes * 1024;
  }
  return info;
}

}  // namespace spry
