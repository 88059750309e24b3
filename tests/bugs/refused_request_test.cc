// A request that the engine refused ended the first one that the server ever took: its client
// waited for ever.
#include <gtest/gtest.h>

#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

TEST(RefusedRequest, EndsNoOther) {
  ApiRig rig({.step_millis = 2, .max_rows = 1, .max_queue = 0});
  const char* body = R"({"prompt":[300],"max_tokens":20})";
  const auto first = rig.Send("POST", "/v1/completions", body);
  rig.model().max_choices = 100;  // it is the engine that refuses
  EXPECT_EQ(rig.Send("POST", "/v1/completions", body)->answer().status, 429);
  rig.Run(*first);
  EXPECT_EQ(first->answer().status, 200);
}

}  // namespace
}  // namespace spry
