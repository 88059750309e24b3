#include "tests/tidy/sizes.h"

#include <gtest/gtest.h>

#include "tests/tidy/cpp_text.h"

namespace spry::tidy {
namespace {

std::string Repeated(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

// A function of `lines` lines in all, from its name to its closing brace.
std::string FunctionOf(int lines) {
  return "int F(int a) {\n" + Repeated("  ++a;\n", lines - 2) + "}\n";
}

TEST(Sizes, FileCaps) {
  const auto findings_at = [](const std::string& path, int lines) {
    return CheckSizes({{path, Repeated("\n", lines)}}).size();
  };
  EXPECT_EQ(findings_at("src/kv/block_pool.cc", 500), 0u);
  EXPECT_EQ(findings_at("src/kv/block_pool.cc", 501), 1u);
  EXPECT_EQ(findings_at("tools/goldens.py", 501), 1u);
  EXPECT_EQ(findings_at("src/device/cpu/avx512/linear.cc", 700), 0u);
  EXPECT_EQ(findings_at("src/device/cuda/linear.cu", 701), 1u);
  EXPECT_EQ(findings_at("src/device/cpu/worker_pool.cc", 501), 1u);
  EXPECT_EQ(findings_at("src/models/llama.cc", 120), 0u);
  EXPECT_EQ(findings_at("src/models/llama.cc", 121), 1u);
  EXPECT_EQ(findings_at("docs/architecture.md", 900), 0u);
}

TEST(Sizes, FunctionCaps) {
  EXPECT_EQ(Listed(CheckSizes({{"src/kv/a.cc", FunctionOf(70)}})), "");
  EXPECT_EQ(Listed(CheckSizes({{"src/kv/a.cc", "\n" + FunctionOf(71)}})),
            "src/kv/a.cc:2: function of 71 lines; the cap is 70: int F(int a)\n");
  EXPECT_EQ(Listed(CheckSizes({{"src/device/cpu/amx/a.cc", FunctionOf(120)}})), "");
  EXPECT_EQ(CheckSizes({{"src/device/cpu/amx/a.cc", FunctionOf(121)}}).size(), 1u);
}

TEST(Sizes, ColumnsCountCharacters) {
  EXPECT_EQ(Listed(CheckSizes({{"src/kv/a.cc", Repeated("\u00e9", 100) + "\n"}})), "");
  EXPECT_EQ(Listed(CheckSizes({{"src/kv/a.cc", "\n" + Repeated("\u00e9", 101) + "\n"}})),
            "src/kv/a.cc:2: 101 columns; the cap is 100\n");
}

TEST(Sizes, WhatCannotBeMeasuredIsFound) {
  EXPECT_EQ(CheckSizes({{"src/kv/a.cc", "void F() {\n"}}).size(), 1u);
  EXPECT_EQ(CheckSizes({{"src/kv/a.cc", "void F() {}\n}\n"}}).size(), 1u);
}

// "head:first line+lines" of each function found.
std::vector<std::string> Found(const std::string& text) {
  std::vector<std::string> found;
  for (const FunctionSpan& f : Functions(text).functions) {
    found.push_back(f.head + ":" + std::to_string(f.first_line) + "+" +
                    std::to_string(f.line_count));
  }
  return found;
}

TEST(FunctionScan, FindsFunctionsWhereverTheyAre) {
  EXPECT_EQ(Found(R"(namespace a {
struct S : Base<decltype(f())> {
 public:
  S(int x) : a_{x}, b_(x), c_{1, 2} {
    Run();
  }
  bool operator()(int x) const noexcept { return x; }
  int a_{3};
};
template <typename T>
auto G(T t) -> int
{
  if (t) { return 1; }
  return [&] { return 2; }();
}
}
)"),
            (std::vector<std::string>{"S(int x) : a_{x}, b_(x), c_{1, 2}:4+3",
                                      "bool operator()(int x) const noexcept:7+1",
                                      "template <typename T> auto G(T t) -> int:10+6"}));
}

TEST(FunctionScan, TablesAreNoFunctions) {
  EXPECT_EQ(Found("const Op kOps[] = {\n  {\"a\", F(1)},\n  {\"b\", F(2), {3}},\n};\n"
                  "enum class E { kA, kB };\nconst int kSum = Add({1, 2});\n"),
            std::vector<std::string>{});
  EXPECT_EQ(Found("const Op kOps[] = {{\"a\", [](int x) {\n return x;\n}}};\n"),
            std::vector<std::string>{"\" \", [](int x):1+3"});
}

TEST(FunctionScan, BracesInTextDoNotCount) {
  const std::string text =
      "void F() {\n  a = \"}\"; b = '}'; c = R\"x(})\" })x\"; // }\n"
      "  /* } */ d = 1'000; e = '\\'';\n#define X }\n}\nvoid G() {}\n";
  EXPECT_EQ(Found(text), (std::vector<std::string>{"void F():1+5", "void G():6+1"}));
  EXPECT_TRUE(Functions(text).balanced);
}

TEST(Sizes, ThisTree) { EXPECT_EQ(Listed(CheckSizes(ThisTree())), ""); }

}  // namespace
}  // namespace spry::tidy
