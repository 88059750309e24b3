#include "tests/tidy/docs.h"

#include <gtest/gtest.h>

namespace spry::tidy {
namespace {

TEST(Docs, PathsExist) {
  const std::vector<SourceFile> files = {
      {"docs/recipes/op.md",
       "Write `src/ops/norm.h`, beside `src/ops/`, `src/ops/<name>.h` and `--flag`.\n"
       "Then `src/ops/gone.h` and `tests/gone`.\n"},
      {"src/ops/norm.h", ""},
  };
  EXPECT_EQ(Listed(CheckPathsInDocs(files)),
            "docs/recipes/op.md:2: there is no src/ops/gone.h\n"
            "docs/recipes/op.md:2: there is no tests/gone\n");
}

TEST(Docs, ThisTree) { EXPECT_EQ(Listed(CheckPathsInDocs(ThisTree())), ""); }

}  // namespace
}  // namespace spry::tidy
