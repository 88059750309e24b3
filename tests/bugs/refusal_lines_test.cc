// Requests that were refused left no line in the log: a client with a wrong key or too many of them
// could not be found.
#include <gmock/gmock.h>

#include "tests/app/serve_run.h"

namespace spry {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using RefusalLines = ServeRun;

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

TEST_F(RefusalLines, NameTheRequestAndTheReason) {
  Serve("--max-num-seqs 1 --max-queue 0");
  const std::string json = "Content-Type: application/json\r\n";
  const auto ask = [&](std::string_view method, std::string_view path, const std::string& body,
                       const std::string& fields) {
    Client client(port_);
    client.Send(RequestText(method, path, body, fields));
    return client.ReadAnswer().status;
  };
  EXPECT_EQ(ask("GET", "/no/such?key=secret", "", "X-Request-Id: one\r\n"), 404);
  EXPECT_EQ(ask("POST", "/v1/completions", "{", json + "X-Request-Id: two\r\n"), 400);
  EXPECT_EQ(ask("POST", "/v1/completions", R"({"prompt":[5],"n":2})", json), 400);
  Client running(port_);
  Post(running, R"({"prompt":[5],"max_tokens":40,"stream":true,"ignore_eos":true,
                   "return_token_ids":true})");
  running.Read(400);
  EXPECT_EQ(ask("POST", "/v1/completions", R"({"prompt":[5]})", json), 429);
  Client no_http(port_);
  no_http.Send("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_EQ(no_http.ReadAnswer().status, 400);
  EXPECT_THAT(Log(), HasSubstr("warning refused id=one method=GET path=/no/such status=404 "
                               "error=\"there is no /no/such here\" left_out=0\n"));
  EXPECT_THAT(Log(), HasSubstr("id=two method=POST path=/v1/completions status=400 error=\"the "
                               "body is not JSON"));
  EXPECT_THAT(Log(), HasSubstr("status=429 error=\"1 answers are running or waiting"));
  EXPECT_THAT(Log(), HasSubstr("method=- path=- status=400 error=\"the request's head has"));
  EXPECT_EQ(Count(Log(), " refused "), 5);
  EXPECT_THAT(Log(), Not(HasSubstr("secret")));
}

TEST_F(RefusalLines, AFloodOfThemDoesNotFillTheDisk) {
  Serve();
  Client client(port_);
  for (int i = 0; i < 1000; ++i) {
    client.Get("/nothing");
    ASSERT_EQ(client.ReadAnswer().status, 404);
  }
  EXPECT_GE(Count(Log(), " refused "), 100);
  EXPECT_LE(Count(Log(), " refused "), 120);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  client.Get("/nothing");
  EXPECT_EQ(client.ReadAnswer().status, 404);
  EXPECT_THAT(Log(), ContainsRegex("left_out=[89][0-9][0-9]\n"));
}

}  // namespace
}  // namespace spry
