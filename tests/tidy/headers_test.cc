#include "tests/tidy/headers.h"

#include <gtest/gtest.h>

namespace spry::tidy {
namespace {

TEST(Headers, CommentAndGuard) {
  EXPECT_EQ(Listed(CheckHeaders({{"src/a/b.h", "// What it is.\n#pragma once\n"}})), "");
  EXPECT_EQ(Listed(CheckHeaders({{"src/a/b.h", "#pragma once\n// Late.\n"}})),
            "src/a/b.h:1: a header opens with a comment that says what it is for\n");
  EXPECT_EQ(Listed(CheckHeaders({{"src/a/b.cuh", "// What it is.\n"}})),
            "src/a/b.cuh:1: a header has one #pragma once\n");
  EXPECT_EQ(Listed(CheckHeaders({{"src/a/b.cc", "int a;\n"}})), "");
}

TEST(Headers, ThisTree) { EXPECT_EQ(Listed(CheckHeaders(ThisTree())), ""); }

}  // namespace
}  // namespace spry::tidy
