// A plan that cannot be met must give its numbers and the flag that helps. Huge KV caches ended as
// "std::bad_alloc", tiny ones advised "lower --max-model-len to 0", and a model with room for
// billions of positions was not told of --max-model-len.
#include <gtest/gtest.h>

#include "tests/app/program_run.h"

namespace spry {
namespace {

class MemoryPlanFaults : public ProgramTest {
 protected:
  void SetUp() override {
    MakeModel("opt");
    WriteText(folder_ / "in.jsonl", R"({"prompt_token_ids": [5, 6, 7], "max_tokens": 2})");
  }
  ProgramResult Generate(const std::string& flags) {
    return Spry("generate opt --load-format dummy --input in.jsonl " + flags);
  }
};

TEST_F(MemoryPlanFaults, KvCacheLargerThanTheMachine) {
  for (const std::string device : {"cpu", "null"}) {
    for (const std::string bytes : {"1000000G", "8589934591G"}) {
      const ProgramResult run =
          Generate("--device " + device + " --kv-cache-memory-bytes " + bytes);
      EXPECT_EQ(run.exit_code, 1);
      EXPECT_NE(run.err.find("--kv-cache-memory-bytes is"), std::string::npos) << run.err;
    }
  }
}

TEST_F(MemoryPlanFaults, KvCacheSmallerThanABlock) {
  for (const std::string device : {"cpu", "null"}) {
    const ProgramResult run = Generate("--device " + device + " --kv-cache-memory-bytes 100");
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_NE(run.err.find("100 bytes"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("raise --kv-cache-memory-bytes"), std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("--max-model-len"), std::string::npos) << run.err;
  }
}

TEST_F(MemoryPlanFaults, BillionsOfPositionsNameTheirFlag) {
  std::string config = ReadText(folder_ / "opt/config.json");
  const std::string small = "\"max_position_embeddings\": 64";
  config.replace(config.find(small), small.size(), "\"max_position_embeddings\": 2147483647");
  WriteText(folder_ / "opt/config.json", config);
  const ProgramResult run = Generate("--device null");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("--max-model-len"), std::string::npos) << run.err;
  EXPECT_EQ(Generate("--device null --max-model-len 64").exit_code, 0);
}

}  // namespace
}  // namespace spry
