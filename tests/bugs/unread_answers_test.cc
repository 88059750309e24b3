// Large answers that nobody read took memory without limit: 6 clients of /detokenize a gigabyte.
#include <gtest/gtest.h>

#include <memory>
#include <string_view>
#include <vector>

#include "tests/server_rig/server_rig.h"

namespace spry {
namespace {

constexpr int kBig = 8'000'000;  // bytes of an answer of /big

TEST(UnreadAnswers, HaveALimitTogether) {
  ServerRig rig({.limits = {.all_answers_bytes = 3 * kBig}});
  std::vector<std::unique_ptr<Client>> clients;
  const auto status = [&] {
    clients.push_back(std::make_unique<Client>(rig.port()));
    clients.back()->Send(RequestText("GET", "/big", ""));
    return clients.back()->Read(std::string_view("HTTP/1.1 200").size());
  };
  // Large answers may take three quarters of it: two wait for their readers.
  EXPECT_EQ(status(), "HTTP/1.1 200");
  EXPECT_EQ(status(), "HTTP/1.1 200");
  EXPECT_EQ(status(), "HTTP/1.1 503");
  // What a client leaves behind is given back, and what has been read.
  clients.clear();
  ASSERT_TRUE(rig.AwaitConnections(0));
  Client reader(rig.port());
  for (int i = 0; i < 4; ++i) {
    reader.Send(RequestText("GET", "/big", ""));
    EXPECT_EQ(reader.ReadAnswer().status, 200);
  }
}

}  // namespace
}  // namespace spry
