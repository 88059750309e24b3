#include "device/cpu/kv_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <vector>

namespace spry {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kBlockBytes = 3 * kPageBytes;
constexpr int32_t kNumBlocks = 100;

class KvMemoryTest : public ::testing::Test {
 protected:
  KvMemoryTest()
      : kv_(*KvMemory::Map(kLayerBlockBytes, {.block_size = 4, .num_blocks = kNumBlocks})) {}

  // A step of that many rows that gave these blocks to rows.
  void Step(int32_t num_rows, std::vector<int32_t> blocks) {
    StepHeader header{.num_rows = num_rows,
                      .num_block_writes = static_cast<int32_t>(blocks.size())};
    std::vector<SlotBlockWrite> writes;
    for (const int32_t block : blocks) writes.push_back({.block = block});
    const StepSlot slot{.header = &header, .block_writes = writes.data()};
    kv_.TouchUsed(slot);
    for (const int32_t block : blocks) EXPECT_TRUE(IsResident(0, block) && IsResident(1, block));
    kv_.TouchAhead(slot);
  }

  bool IsResident(int layer, int32_t block) const {
    std::array<unsigned char, kBlockBytes / kPageBytes> pages = {};
    EXPECT_EQ(mincore(kv_.layer(LayerIdx(layer)) + block * kBlockBytes, kBlockBytes, pages.data()),
              0);
    int resident = 0;
    for (const unsigned char page : pages) resident += page & 1;
    return resident == static_cast<int>(pages.size());
  }

  static constexpr std::array<int64_t, 2> kLayerBlockBytes = {kBlockBytes, kBlockBytes};
  KvMemory kv_;
};

TEST_F(KvMemoryTest, TouchesAFewBlocksAfterEachStepAndNoMoreThanRowsNeedSoon) {
  EXPECT_FALSE(IsResident(0, 5));
  Step(/*num_rows=*/6, {0, 1, 2, 3, 4});
  EXPECT_EQ(kv_.touched_end(), 7);  // 5 in use and, for 6 rows of 4 tokens a block, 2 more
  for (const int layer : {0, 1}) {
    EXPECT_TRUE(IsResident(layer, 5) && IsResident(layer, 6));
    EXPECT_FALSE(IsResident(layer, 7));
  }
  for (int step = 0; step < 50; ++step) Step(6, {});
  EXPECT_EQ(kv_.touched_end(), 5 + 2 * 6);
}

TEST_F(KvMemoryTest, KeepsUpWithRowsThatGrow) {
  constexpr int32_t kRows = 8;
  int32_t next = kRows;
  Step(kRows, {0, 1, 2, 3, 4, 5, 6, 7});
  for (int step = 0; step < 3; ++step) Step(kRows, {});
  // All rows take a block in the same step, every fourth.
  for (int round = 0; round < 5; ++round) {
    std::vector<int32_t> taken;
    for (int row = 0; row < kRows; ++row) taken.push_back(next++);
    EXPECT_GE(kv_.touched_end(), round == 0 ? kRows + 6 : next) << round;
    Step(kRows, taken);
    for (int step = 0; step < 3; ++step) Step(kRows, {});
  }
}

TEST_F(KvMemoryTest, ChangesNothingAndEndsWithThePool) {
  std::byte* const last = kv_.layer(LayerIdx(1)) + (kNumBlocks - 1) * kBlockBytes;
  last[7] = std::byte{42};
  Step(4, {kNumBlocks - 2});
  Step(4, {});
  Step(4, {});
  EXPECT_EQ(kv_.touched_end(), kNumBlocks);
  EXPECT_EQ(last[7], std::byte{42});
}

}  // namespace
}  // namespace spry
