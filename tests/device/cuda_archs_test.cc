#include <gtest/gtest.h>

#include "device/cuda/archs.h"

namespace spry::cuda {
namespace {

TEST(CudaArchs, AreMetByTheCardsThatTheirCodeRunsOn) {
  EXPECT_TRUE(HasCodeFor("90a-real", 9, 0));
  EXPECT_FALSE(HasCodeFor("90a-real", 10, 0));
  EXPECT_FALSE(HasCodeFor("90a-real", 8, 0));
  EXPECT_TRUE(HasCodeFor("80-real;90a-real", 8, 9));
  EXPECT_TRUE(HasCodeFor("80-real,90a-real", 9, 0));
  EXPECT_FALSE(HasCodeFor("80-real,90a-real", 7, 5));
  EXPECT_FALSE(HasCodeFor("86-real", 8, 0));
  EXPECT_TRUE(HasCodeFor("80-virtual", 12, 0));
  EXPECT_TRUE(HasCodeFor("75", 7, 5));
  EXPECT_TRUE(HasCodeFor("75", 9, 0));
  EXPECT_FALSE(HasCodeFor("75", 7, 0));
  EXPECT_TRUE(HasCodeFor("100-real", 10, 3));
  EXPECT_FALSE(HasCodeFor("", 9, 0));
  EXPECT_TRUE(HasCodeFor("all-major", 9, 0));
}

}  // namespace
}  // namespace spry::cuda
