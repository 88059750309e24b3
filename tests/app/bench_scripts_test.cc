// The scripts of bench/ as somebody meets them who does not know them yet.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/app/program_run.h"

namespace spry {
namespace {

using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

struct Script {
  std::string path;       // in bench/
  std::string arguments;  // that it takes, though what they name is not there
  bool takes_counts = false;
};

const Script kScripts[] = {{"overhead.sh", ""},
                           {"perplexity.sh", "m.gguf"},
                           {"start.sh", "m.gguf"},
                           {"peers/run.py", "--peers peers"},
                           {"versus_llama_bench.py", "m.gguf --llama-bench llama-bench"},
                           {"server/first_token.py", "", true},
                           {"server/inter_token.py", "", true},
                           {"server/overload.py", "", true},
                           {"server/start_and_idle.py", "", true},
                           {"server/streams.py", "", true},
                           {"server/token_cost.py", "", true}};

class BenchScripts : public ProgramTest {
 protected:
  ProgramResult RunScript(const std::string& root, const std::string& path,
                          const std::string& arguments) {
    const char* interpreter = path.ends_with(".py") ? "/usr/bin/python3 -B" : "bash";
    return Shell(
        fmt::format("env -u SPRY_PROGRAM {} '{}/bench/{}' {}", interpreter, root, path, arguments));
  }
};

TEST_F(BenchScripts, ExplainThemselves) {
  std::vector<std::string> paths = {"peers/install.sh"};
  for (const Script& script : kScripts) paths.push_back(script.path);
  for (const std::string& path : paths) {
    const ProgramResult help = RunScript(SPRY_SOURCE_DIR, path, "--help");
    EXPECT_EQ(help.exit_code, 0) << path << help.err;
    EXPECT_EQ(help.err, "") << path;
    EXPECT_THAT(help.out, AnyOf(HasSubstr("usage: "), HasSubstr("Usage: bench/" + path))) << path;
    EXPECT_THAT(help.out, AnyOf(HasSubstr("Takes"), HasSubstr("takes"))) << path;
  }
}

// In a tree where nothing was built.
TEST_F(BenchScripts, SayHowToBuildTheProgramThatIsMissing) {
  ASSERT_EQ(Shell("mkdir tests && cp -r '" SPRY_SOURCE_DIR "/bench' . && "
                  "cp -r '" SPRY_SOURCE_DIR "/tests/clients' tests")
                .exit_code,
            0);
  for (const Script& script : kScripts) {
    const ProgramResult r = RunScript(folder_.string(), script.path, script.arguments);
    EXPECT_EQ(r.exit_code, 2) << script.path;
    EXPECT_THAT(r.err, HasSubstr(": there is no ")) << script.path;
    EXPECT_THAT(r.err, EndsWith("build/release/spry; build it: cmake --preset release && ninja -C "
                                "build/release spry\n"))
        << script.path;
    EXPECT_EQ(std::ranges::count(r.err, '\n'), 1) << r.err;
    EXPECT_EQ(r.out, "") << script.path;
  }
}

TEST_F(BenchScripts, RefuseWhatIsNoCount) {
  for (const Script& script : kScripts) {
    if (!script.takes_counts) continue;
    for (const char* wrong : {"many", "0", "-1"}) {
      const ProgramResult r = RunScript(SPRY_SOURCE_DIR, script.path, wrong);
      EXPECT_EQ(r.exit_code, 2) << script.path << " " << wrong;
      EXPECT_THAT(r.err, Not(HasSubstr("Traceback"))) << script.path << " " << wrong;
      EXPECT_THAT(r.err, HasSubstr("usage: ")) << script.path << " " << wrong;
    }
  }
}

}  // namespace
}  // namespace spry
