#include "app/percentiles.h"

#include <gtest/gtest.h>

namespace spry {
namespace {

// The figures are numpy.percentile's.
TEST(PercentilesTest, InterpolatesAsNumpyDoes) {
  const Percentiles p({4.0, 1.0, 3.0, 2.0});
  EXPECT_DOUBLE_EQ(p.At(0), 1.0);
  EXPECT_DOUBLE_EQ(p.At(10), 1.3);
  EXPECT_DOUBLE_EQ(p.At(25), 1.75);
  EXPECT_DOUBLE_EQ(p.At(50), 2.5);
  EXPECT_DOUBLE_EQ(p.At(90), 3.7);
  EXPECT_DOUBLE_EQ(p.At(99), 3.97);
  EXPECT_DOUBLE_EQ(p.At(100), 4.0);
}

TEST(PercentilesTest, OneValueIsEveryPercentile) {
  const Percentiles p({7.0});
  EXPECT_DOUBLE_EQ(p.At(1), 7.0);
  EXPECT_DOUBLE_EQ(p.At(99), 7.0);
}

}  // namespace
}  // namespace spry
