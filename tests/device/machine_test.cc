#include "device/cpu/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace spry {
namespace {

namespace fs = std::filesystem;

class MachineTest : public ::testing::Test {
 protected:
  MachineTest() : root_(fs::path(::testing::TempDir()) / "spry_machine_test") {
    fs::remove_all(root_);
  }
  ~MachineTest() override { fs::remove_all(root_); }

  std::string Write(const std::string& path, const std::string& text) {
    const fs::path full = root_ / path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
    return full.string();
  }
  std::string Path(const std::string& path) { return (root_ / path).string(); }

  fs::path root_;
};

TEST_F(MachineTest, ThreadsOfACoreCountOnce) {
  for (const int cpu : {0, 1, 2, 3}) {
    const std::string pair = cpu % 2 == 0 ? "0,2" : "1,3";
    Write("cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", pair + "\n");
  }
  const std::vector<int> all = {0, 1, 2, 3}, siblings = {1, 3}, unknown = {0, 2, 17};
  EXPECT_EQ(CountPhysicalCores(all, Path("cpu")), 2);
  EXPECT_EQ(CountPhysicalCores(siblings, Path("cpu")), 1);
  EXPECT_EQ(CountPhysicalCores(unknown, Path("cpu")), 2);
}

TEST_F(MachineTest, DataCachesNearestFirst) {
  const auto cache = [this](int index, const char* level, const char* type, const char* size,
                            const char* shared) {
    const std::string folder = "cpu/cpu0/cache/index" + std::to_string(index) + "/";
    Write(folder + "level", level);
    Write(folder + "type", type);
    Write(folder + "size", size);
    Write(folder + "shared_cpu_list", shared);
  };
  cache(0, "3", "Unified", "32M\n", "0-3,8,10-11\n");
  cache(1, "1", "Instruction", "64K\n", "0\n");
  cache(2, "1", "Data", "32K\n", "0\n");
  cache(3, "2", "Unified", "1024K\n", "0,4\n");
  const std::vector<CacheLevel> caches = ReadCaches(Path("cpu"));
  ASSERT_EQ(caches.size(), 3u);
  EXPECT_EQ(caches[0].name, "L1");
  EXPECT_EQ(caches[0].bytes, 32 << 10);
  EXPECT_EQ(caches[0].sharers, 1);
  EXPECT_EQ(caches[1].bytes, 1 << 20);
  EXPECT_EQ(caches[1].sharers, 2);
  EXPECT_EQ(caches[2].name, "L3");
  EXPECT_EQ(caches[2].bytes, 32 << 20);
  EXPECT_EQ(caches[2].sharers, 7);
  EXPECT_TRUE(ReadCaches(Path("nothing")).empty());
}

TEST_F(MachineTest, TheTightestGroupLimits) {
  const std::string self = Write("self", "12:cpu:/elsewhere\n0::/a/b\n");
  Write("cg/a/b/cpu.max", "max 100000\n");
  Write("cg/a/cpu.max", "150000 100000\n");
  Write("cg/cpu.max", "400000 100000\n");
  Write("cg/a/b/memory.max", "1000\n");
  Write("cg/a/b/memory.current", "300\n");
  Write("cg/a/memory.max", "max\n");
  const CgroupLimits limits = ReadCgroupLimits(self, Path("cg"));
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes, 1000);
  EXPECT_EQ(limits.memory_used_bytes, 300);
}

TEST_F(MachineTest, LimitsOfFormerHierarchies) {
  const std::string self = Write("self", "4:memory:/a/b\n3:cpu,cpuacct:/c\n2:cpuset:/\n0::/\n");
  Write("cg/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  Write("cg/memory/a/memory.limit_in_bytes", "4096\n");
  Write("cg/memory/a/memory.usage_in_bytes", "123\n");
  Write("cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("cg/cpu/c/cpu.cfs_quota_us", "150000\n");
  Write("cg/cpu/c/cpu.cfs_period_us", "100000\n");
  Write("cg/cpu/cpu.cfs_quota_us", "-1\n");
  Write("cg/cpu/cpu.cfs_period_us", "100000\n");
  const CgroupLimits limits = ReadCgroupLimits(self, Path("cg"));
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes, 4096);
  EXPECT_EQ(limits.memory_used_bytes, 123);
}

TEST_F(MachineTest, NoGroupsNoLimits) {
  const std::string v1 = Write("self", "12:cpu:/elsewhere\n");
  const CgroupLimits limits = ReadCgroupLimits(v1, Path("nothing"));
  EXPECT_FALSE(limits.cpus || limits.memory_bytes);
  const std::string root = Write("root", "0::/\n");
  Write("cg/cpu.max", "50000 100000\n");
  EXPECT_EQ(ReadCgroupLimits(root, Path("cg")).cpus, 0.5);
  EXPECT_FALSE(ReadCgroupLimits(Path("missing"), Path("cg")).cpus);
}

TEST_F(MachineTest, MemoryInfo) {
  const std::string path =
      Write("meminfo", "MemTotal:       1000 kB\nMemFree: 5 kB\nMemAvailable:    600 kB\n");
  EXPECT_EQ(ReadMemoryInfo(path).total_bytes, 1000 * 1024);
  EXPECT_EQ(ReadMemoryInfo(path).available_bytes, 600 * 1024);
}

TEST_F(MachineTest, ThisMachine) {
  EXPECT_GE(CountPhysicalCores(AllowedCpus(), kTopologyRoot), 1);
  EXPECT_GT(ReadMemoryInfo(kMemInfo).total_bytes, 0);
}

}  // namespace
}  // namespace spry
