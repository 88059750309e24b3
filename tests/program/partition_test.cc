#include "program/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace spry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Program WithOps(const std::vector<OpId>& ids) {
  Program program;
  for (const OpId id : ids) program.ops.push_back({.id = id});
  return program;
}

const Program kLayers = WithOps({OpId::kStage, OpId::kEmbed, OpId::kLinear, OpId::kWriteKv,
                                 OpId::kAttention, OpId::kLinear, OpId::kAttention, OpId::kSample});

TEST(Partition, CutsAtEverySplittingOp) {
  const std::vector<OpId> splitting = {OpId::kAttention};
  EXPECT_THAT(*PartitionAt(kLayers, splitting),
              ElementsAre(Piece{0, 4, false}, Piece{4, 5, true}, Piece{5, 6, false},
                          Piece{6, 7, true}, Piece{7, 8, false}));
}

TEST(Partition, NeighbouringSplittingOpsAreOnePiece) {
  const std::vector<OpId> splitting = {OpId::kAttention, OpId::kWriteKv};
  EXPECT_THAT(*PartitionAt(kLayers, splitting),
              ElementsAre(Piece{0, 3, false}, Piece{3, 5, true}, Piece{5, 6, false},
                          Piece{6, 7, true}, Piece{7, 8, false}));
}

TEST(Partition, TheFirstAndTheLastOpMaySplit) {
  const std::vector<OpId> splitting = {OpId::kSample, OpId::kStage};
  EXPECT_THAT(*PartitionAt(kLayers, splitting),
              ElementsAre(Piece{0, 1, true}, Piece{1, 7, false}, Piece{7, 8, true}));
}

TEST(Partition, WithoutSplittingOpsThereIsOnePiece) {
  EXPECT_THAT(*PartitionAt(kLayers, {}), ElementsAre(Piece{0, 8, false}));
}

TEST(Partition, AnOpThatTheProgramHasNotIsRefusedWithThoseThatItHas) {
  const std::vector<OpId> splitting = {OpId::kAttention, OpId::kRope};
  const auto pieces = PartitionAt(kLayers, splitting);
  ASSERT_EQ(pieces.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(pieces.status().message(), HasSubstr("names rope"));
  EXPECT_THAT(pieces.status().message(),
              HasSubstr("stage, embed, linear, write_kv, attention, sample"));
}

}  // namespace
}  // namespace spry
