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
  std::vector<std::string> paths = {"peers/install.sh", "peers/driver.py", "peers/make_models.py"};
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

TEST_F(BenchScripts, RefuseAFlagThatIsNone) {
  for (const char* path : {"overhead.sh", "perplexity.sh", "start.sh", "peers/install.sh"}) {
    const ProgramResult r = RunScript(SPRY_SOURCE_DIR, path, "--fly");
    EXPECT_EQ(r.exit_code, 2) << path;
    EXPECT_THAT(r.err, EndsWith(": there is no flag --fly (see --help)\n")) << path;
    EXPECT_EQ(std::ranges::count(r.err, '\n'), 1) << r.err;
  }
}

// Stand-ins: one program that writes figures, and ones that do not.
TEST_F(BenchScripts, VersusLlamaBenchTellsWhatAProgramDidWrong) {
  WriteText(folder_ / "spry",
            "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\n"
            "echo '{\"percentiles\": {\"50\": 1}}' >\"$1\"\n");
  WriteText(folder_ / "fails", "#!/bin/sh\necho no such model >&2\nexit 3\n");
  ASSERT_EQ(Shell("chmod +x spry fails; touch m.gguf").exit_code, 0);
  const auto error = [this](const std::string& spry, const std::string& llama) {
    return RunScript(SPRY_SOURCE_DIR, "versus_llama_bench.py",
                     "m.gguf --rounds 1 --spry " + spry + " --llama-bench " + llama)
        .err;
  };
  EXPECT_EQ(error("./spry", "/bin/true"), "/bin/true wrote no JSON: ''\n");
  EXPECT_EQ(error("./spry", "./fails"), "./fails failed (3): no such model\n");
  EXPECT_EQ(error("/bin/true", "/bin/true"), "/bin/true wrote no JSON: ''\n");
  EXPECT_EQ(error("./fails", "/bin/true"), "./fails failed (3): no such model\n");
  EXPECT_THAT(error("./spry", "/bin/true --rounds 0"), HasSubstr("invalid count value: '0'"));
}

// In a tree whose spry cannot read the model.
TEST_F(BenchScripts, PerplexityShowsTheProgramsError) {
  ASSERT_EQ(Shell("mkdir -p build/release docs && cp -r '" SPRY_SOURCE_DIR "/bench' . && "
                  "touch LICENSE docs/architecture.md docs/server.md docs/models.md m.gguf && "
                  "ln -s \"$SPRY\" build/release/spry")
                .exit_code,
            0);
  const ProgramResult r = RunScript(folder_.string(), "perplexity.sh", "m.gguf");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("spry: "));
  EXPECT_THAT(r.err, HasSubstr("m.gguf"));
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
