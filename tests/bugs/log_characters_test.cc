// A client's words in the log (names of fields it made up) could bring C1 controls, which steer
// some terminals, and U+2028 and U+2029, at which some readers of logs end a line.
#include <gmock/gmock.h>

#include <string>

#include "tests/app/serve_run.h"
#include "text/utf8.h"

namespace spry {
namespace {

using ::testing::HasSubstr;
using LogCharacters = ServeRun;

TEST_F(LogCharacters, NoneOfAClientsSteerTheReader) {
  Serve();
  Client client(port_);
  Post(client,
       "{\"prompt\":[5],\"max_tokens\":1,\"request_id\":\"mine\","
       "\"a\\u0085\\u009b\\u2028\\u2029\\u202e\\u2066\\u007f\\u001bz\":1,"
       "\"\xC3\xA9\":1}");
  EXPECT_EQ(client.ReadAnswer().status, 200);
  ASSERT_TRUE(AwaitLog("ignored fields id=mine"));
  EXPECT_THAT(Log(), HasSubstr("fields=\"a        z,\xC3\xA9\"\n"));
}

// A line that is cut ends with a whole character.
TEST_F(LogCharacters, LinesAreCutBetweenThem) {
  for (const std::string shift : {"", "a", "ab", "abc"}) {
    std::string name = shift;
    for (int i = 0; i < 1100; ++i) name += "\xF0\x9F\x98\x80";
    Serve("--served-model-name " + name);
    Signal();
    EXPECT_EQ(Wait(), 0);
    EXPECT_TRUE(IsValidUtf8(Log()));
  }
}

}  // namespace
}  // namespace spry
