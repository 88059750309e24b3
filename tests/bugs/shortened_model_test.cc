// A server whose model file was shortened in place died of SIGBUS without a word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/app/program_run.h"

namespace spry {
namespace {

using ::testing::HasSubstr;

using ShortenedModel = ProgramTest;

TEST_F(ShortenedModel, IsNamedAsTheEnd) {
  MakeModel("opt");
  const ProgramResult run = Shell(
      "\"$SPRY\" serve opt --port 0 --load-format dummy --device null & server=$!; "
      "for i in $(seq 100); do grep -q serving .err && break; sleep 0.1; done; "
      "kill -BUS $server; wait $server");
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.err,
              HasSubstr("spry: a file of the model, or libspry_cuda.so, is shorter than it"));
}

}  // namespace
}  // namespace spry
