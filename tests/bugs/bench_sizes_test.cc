// Sizes that no machine holds made the benchmarks allocate until they died, or end in
// "std::bad_alloc"; a folder as --lengths was reported without its name.
#include <gtest/gtest.h>

#include "tests/app/program_run.h"

namespace spry {
namespace {

class BenchSizes : public ProgramTest {
 protected:
  void SetUp() override { MakeModel("opt"); }

  // Runs a benchmark of the tiny model on the null device, which must be refused with `reason`.
  void ExpectRefused(const std::string& arguments, const std::string& reason) {
    const ProgramResult run = Spry("bench " + arguments + " opt --load-format dummy --device null");
    EXPECT_TRUE(run.exit_code == 1 || run.exit_code == 2) << arguments << ": " << run.exit_code;
    EXPECT_NE(run.err.find(reason), std::string::npos) << arguments << ": " << run.err;
  }
};

TEST_F(BenchSizes, LatencyRefusesWhatCannotBeHeld) {
  ExpectRefused("latency --input-len 2147483647", "--input-len");
  ExpectRefused("latency --output-len 2147483647", "--output-len");
  ExpectRefused("latency --batch-size 2147483647", "--batch-size");
  ExpectRefused("latency --num-iters 2147483647", "--num-iters");
  ExpectRefused("latency --num-iters-warmup 2147483647", "--num-iters-warmup");
  ExpectRefused("latency --input-len 16777216", "max_model_len of 64");
}

TEST_F(BenchSizes, ThroughputRefusesWhatCannotBeHeld) {
  ExpectRefused("throughput --num-prompts 2147483647 --input-len 1 --output-len 1",
                "--num-prompts");
  ExpectRefused("throughput --input-len 16777216 --output-len 1", "max_model_len of 64");
  WriteText(folder_ / "lengths.json", R"({"in": [4, 16777216], "out": [1, 1]})");
  ExpectRefused("throughput --lengths lengths.json", "max_model_len of 64");
}

TEST_F(BenchSizes, LengthsThatAreNoFileAreNamed) {
  ExpectRefused("throughput --lengths opt", "opt cannot be read: Is a directory");
  ExpectRefused("throughput --lengths nowhere", "nowhere cannot be opened");
}

}  // namespace
}  // namespace spry
