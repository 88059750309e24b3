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

// v1: a quota per period in microseconds; -1 is no limit.
std::optional<double> ReadCpuQuota(const std::string& folder) {
  const std::optional<int64_t> quota = ReadNumber(folder + "cpu.cfs_quota_us");
  const std::optional<int64_t> period = ReadNumber(folder + "cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// The process's group in the hierarchy of a controller, from lines like "4:cpu,cpuacct:/path". The
// v2 hierarchy names no controller.
std::optional<std::string> OwnGroup(const std::string& self_cgroup, const std::string& controller) {
  std::ifstream file(self_cgroup);
  for (std::string line; std::getline(file, line);) {
    const size_t names = line.find(':') + 1;
    const size_t path = line.find(":/", names);
    if (path == std::string::npos) continue;
    const std::string listed = "," + line.substr(names, path - names) + ",";
    if (listed.find("," + controller + ",") != std::string::npos) return line.substr(path + 1);
  }
  return std::nullopt;
}

// Calls `visit` with the folder of the group and of each above it: a limit holds for all groups
// below. In a container the own group may look like "/".
template <typename Visit>
void VisitGroups(const std::string& root, std::string group, const Visit& visit) {
  while (true) {
    visit(root + group + (group.ends_with("/") ? "" : "/"));
    if (group == "/") return;
    const size_t slash = group.rfind('/');
    group = slash == 0 ? "/" : group.substr(0, slash);
  }
}

void Tighten(std::optional<double> cpus, CgroupLimits& limits) {
  if (cpus) limits.cpus = std::min(*cpus, limits.cpus.value_or(*cpus));
}

void Tighten(std::optional<int64_t> bytes, const std::string& used_file, CgroupLimits& limits) {
  constexpr int64_t kNoLimit = int64_t{1} << 62;  // v1 writes the largest number of whole pages
  if (!bytes || *bytes >= limits.memory_bytes.value_or(kNoLimit)) return;
  limits.memory_bytes = bytes;
  limits.memory_used_bytes = ReadNumber(used_file);
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
  if (const auto group = OwnGroup(self_cgroup, ""); group) {
    VisitGroups(cgroup_root, *group, [&limits](const std::string& folder) {
      Tighten(ReadCpuMax(folder + "cpu.max"), limits);
      Tighten(ReadNumber(folder + "memory.max"), folder + "memory.current", limits);
    });
  }
  if (const auto group = OwnGroup(self_cgroup, "cpu"); group) {
    VisitGroups(cgroup_root + "/cpu", *group,
                [&limits](const std::string& folder) { Tighten(ReadCpuQuota(folder), limits); });
  }
  if (const auto group = OwnGroup(self_cgroup, "memory"); group) {
    VisitGroups(cgroup_root + "/memory", *group, [&limits](const std::string& folder) {
      Tighten(ReadNumber(folder + "memory.limit_in_bytes"), folder + "memory.usage_in_bytes",
              limits);
    });
  }
  return limits;
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
