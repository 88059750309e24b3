#include "tests/sched/scenario.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace spry::testing {
namespace {

std::vector<std::filesystem::path> CaseFiles() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = std::filesystem::path(SPRY_SOURCE_DIR) / "tests/cases/sched";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".case") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

class ScenarioTest : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(ScenarioTest, Holds) { EXPECT_EQ(Scenario::Run(GetParam()).message(), ""); }

INSTANTIATE_TEST_SUITE_P(Cases, ScenarioTest, ::testing::ValuesIn(CaseFiles()),
                         [](const auto& file) { return file.param.stem().string(); });

}  // namespace
}  // namespace spry::testing
