// What models there are.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "checkpoint/config_limits.h"
#include "models/model.h"

namespace spry {
namespace {

// Files are refused two layers below the models, by a list of names of its own.
TEST(Registry, RefusalsNameTheModelsThatThereAre) {
  EXPECT_EQ(fmt::format("{}", fmt::join(SupportedArchitectures(), ", ")), kArchitectures);
}

}  // namespace
}  // namespace spry
