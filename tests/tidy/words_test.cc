#include "tests/tidy/words.h"

#include <gtest/gtest.h>

#include <string>

namespace spry::tidy {
namespace {

// The words looked for are put together here, so that this file doesn't hold them.
std::string Joined(const std::string& a, const std::string& b) { return a + b; }

TEST(Words, MarksOfUnfinishedWork) {
  for (const std::string& mark :
       {Joined("TO", "DO"), Joined("FIX", "ME"), Joined("XX", "X"), Joined("HA", "CK")}) {
    EXPECT_EQ(Listed(CheckWords({{"src/a/b.cc", "int a;\n// " + mark + ": later\n"}})),
              "src/a/b.cc:2: unfinished work belongs in an issue, not in the code\n");
    EXPECT_EQ(Listed(CheckWords({{"src/a/b.cc", "// " + mark + "ED\n"}})), "");
    EXPECT_EQ(Listed(CheckWords({{"docs/a.md", mark + "\n"}})), "");
  }
}

TEST(Words, FileNames) {
  EXPECT_EQ(CheckWords({{"src/a/utils.h", ""}}).size(), 1u);
  EXPECT_EQ(CheckWords({{"src/common/a.h", ""}}).size(), 1u);
  EXPECT_EQ(CheckWords({{"tests/a/string_helpers.cc", ""}}).size(), 1u);
  EXPECT_EQ(Listed(CheckWords({{"src/a/utilisation.h", ""}, {"src/a/commonly.h", ""}})), "");
}

TEST(Words, MachinePaths) {
  const std::string work = Joined("/wo", "rk/x");
  EXPECT_EQ(CheckWords({{"README.md", "see " + work + "\n"}}).size(), 1u);
  EXPECT_EQ(CheckWords({{"tools/a.py", work + "\n"}}).size(), 1u);
  EXPECT_EQ(CheckWords({{"tools/a.py", "open('" + Joined("/ro", "ot/") + "x')\n"}}).size(), 1u);
  EXPECT_EQ(Listed(CheckWords({{"README.md", "build" + work + " and .." + work + "\n"}})), "");
}

TEST(Words, RegistryAddresses) {
  EXPECT_EQ(CheckWords({{"tools/a.sh", "curl " + Joined("py", "pi.org") + "/simple\n"}}).size(),
            1u);
  EXPECT_EQ(CheckWords({{"README.md", Joined("deb.deb", "ian.org") + "\n"}}).size(), 1u);
  EXPECT_EQ(Listed(CheckWords({{"README.md", "from PyPI, on Debian\n"}})), "");
}

TEST(Words, Environment) {
  const SourceFile reader{"src/base/a.cc", "\nauto* home = std::getenv(\"HOME\");\n"};
  EXPECT_EQ(Listed(CheckEnvironment({reader})),
            "src/base/a.cc:2: only src/app reads the environment\n");
  EXPECT_EQ(Listed(CheckEnvironment({{"src/app/main.cc", reader.text},
                                     {"tests/a_test.cc", reader.text},
                                     {"src/base/b.cc", "// getenv is for app\n"}})),
            "");
}

TEST(Words, ThisTree) {
  EXPECT_EQ(Listed(CheckWords(ThisTree())), "");
  EXPECT_EQ(Listed(CheckEnvironment(ThisTree())), "");
}

}  // namespace
}  // namespace spry::tidy
