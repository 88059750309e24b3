// Where the system refuses memory or threads ("ulimit -v", a cgroup's pids), the program said
// "CHECK failed" or "terminate called" and died of SIGABRT. It must say what was refused instead.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "device/cpu/memory_region.h"
#include "device/cpu/worker_pool.h"
#include "tests/app/program_run.h"

namespace spry {
namespace {

constexpr int64_t kBeyondAnyMachine = int64_t{1} << 50;

TEST(MemoryRegion, RefusalIsAnError) {
  const Result<MemoryRegion> region = MemoryRegion::Map(kBeyondAnyMachine, PageKind::kNormal);
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(region.status().message().find(std::to_string(kBeyondAnyMachine)), std::string::npos);
}

TEST(WorkerPool, RefusalIsAnError) {
  const auto pool = WorkerPool::Create(1 << 30);  // 2^50 bytes of scratch
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), StatusCode::kResourceExhausted);
}

// The sanitizers' own shadow memory needs more address space than any of these limits leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
using AddressSpace = ProgramTest;

// Wherever in loading the memory ends: an answer, or one line and exit code 1. With less
// than 20 MiB the system cannot start the program.
TEST_F(AddressSpace, EndsInOneLineAtAnyLimit) {
  MakeModel("opt");
  WriteText(folder_ / "in.jsonl", R"({"prompt_token_ids": [5, 6, 7], "max_tokens": 2})");
  int refused = 0, served = 0;
  for (const int mebibytes : {22, 26, 30, 45, 60, 80, 100, 120, 140, 160, 180, 220, 300, 1000}) {
    const ProgramResult run =
        Shell(fmt::format("ulimit -v {}; \"$SPRY\" generate opt --load-format dummy --threads 2 "
                          "--kv-cache-memory-bytes 16M --max-model-len 64 --input in.jsonl",
                          mebibytes * 1024));
    ASSERT_TRUE(run.exit_code == 0 || run.exit_code == 1)
        << mebibytes << " MiB: exit " << run.exit_code << "\n"
        << run.err;
    if (run.exit_code == 0) {
      ++served;
      continue;
    }
    ++refused;
    // Where there is one core, a line before it says that two threads are more.
    const size_t last = run.err.rfind('\n', run.err.size() - 2) + 1;
    EXPECT_TRUE(last == 0 || run.err.find(" warning --threads") < last) << run.err;
    EXPECT_TRUE(run.err.substr(last).starts_with("spry: ")) << run.err;
    EXPECT_NE(run.err.find("the system refuses"), std::string::npos) << run.err;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(served, 0);
}

// A server too, which starts threads and the null device's memory besides.
TEST_F(AddressSpace, AServerEndsInOneLineOrServes) {
  MakeModel("opt");
  int refused = 0, served = 0;
  for (const int mebibytes : {24, 28, 31, 34, 37, 40, 44, 200}) {
    const ProgramResult run =
        Shell(fmt::format("ulimit -v {}; timeout --preserve-status 1 \"$SPRY\" serve opt --port 0 "
                          "--load-format dummy --device null",
                          mebibytes * 1024));
    ++(run.exit_code == 0 ? served : refused);
    if (run.exit_code == 0) continue;
    EXPECT_EQ(run.exit_code, 1) << mebibytes << " MiB: " << run.err;
    // The plan of the memory may come before it.
    const size_t last = run.err.rfind('\n', run.err.size() - 2) + 1;
    EXPECT_TRUE(run.err.substr(last).starts_with("spry: the system refuses ")) << run.err;
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(served, 0);
}

// Descriptors: "ulimit -n 10" was a CHECK.
TEST_F(AddressSpace, AServerNamesTheDescriptorsItNeeds) {
  MakeModel("opt");
  for (const int descriptors : {6, 8, 10, 12, 64}) {
    const ProgramResult run =
        Shell(fmt::format("ulimit -n {}; timeout --preserve-status 5 \"$SPRY\" serve opt --port 0 "
                          "--load-format dummy --device null",
                          descriptors));
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_EQ(run.err, fmt::format("spry: the limit on open files (ulimit -n) is {}; the server "
                                   "needs 64 and one for each connection: raise it\n",
                                   descriptors));
  }
}

TEST_F(AddressSpace, ThreadsThatCannotStartAreNamed) {
  MakeModel("opt");
  WriteText(folder_ / "in.jsonl", R"({"prompt_token_ids": [5, 6, 7], "max_tokens": 2})");
  // Scratch takes 1 MiB a thread and stacks 8 MiB: the limit lies between.
  const ProgramResult run = Shell(
      "ulimit -s 8192; ulimit -v 2000000; \"$SPRY\" generate opt --load-format dummy --threads "
      "1000 --kv-cache-memory-bytes 16M --max-model-len 64 --input in.jsonl");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_NE(run.err.find("--threads"), std::string::npos) << run.err;
}
#endif

}  // namespace
}  // namespace spry
