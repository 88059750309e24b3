// A client without a key could have its whole body read, and kept, before it was refused: megabytes
// for a minute. What the head tells is answered when the head is there.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/app/serve_run.h"

namespace spry {
namespace {

using ::testing::HasSubstr;

constexpr const char* kJson = "Content-Type: application/json\r\n";
constexpr const char* kKey = "Authorization: Bearer k\r\n";
constexpr const char* kSmall = R"({"prompt":[5],"max_tokens":1})";

class EarlyRefusals : public ServeRun {
 protected:
  // Sends a head that announces a body, and nothing of that.
  std::unique_ptr<Client> SendHead(std::string_view line, const std::string& fields,
                                   std::string_view length = "Content-Length: 1000000") {
    auto client = std::make_unique<Client>(port_);
    client->Send(fmt::format("{} HTTP/1.1\r\nHost: a\r\n{}\r\nExpect: 100-continue\r\n{}\r\n", line,
                             length, fields));
    return client;
  }

  void ExpectRefused(int status, std::string_view line, const std::string& fields) {
    for (const char* length : {"Content-Length: 1000000", "Transfer-Encoding: chunked"}) {
      const auto client = SendHead(line, fields, length);
      // A 100 would be the first answer read.
      const Answer answer = client->ReadAnswer();
      EXPECT_EQ(answer.status, status) << line << answer.head;
      EXPECT_EQ(answer.Field("Connection"), "close");
      EXPECT_THAT(answer.body, HasSubstr("\"error\""));
      EXPECT_TRUE(client->IsEnded());
    }
  }
};

TEST_F(EarlyRefusals, ComeBeforeAnyOfTheBody) {
  Serve("--api-key k");
  const std::string all = std::string(kJson) + kKey;
  ExpectRefused(401, "POST /v1/completions", kJson);
  ExpectRefused(401, "POST /v1/completions", std::string(kJson) + "Authorization: Bearer x\r\n");
  ExpectRefused(401, "POST /tokenize", kJson);
  ExpectRefused(404, "POST /nothing", all);
  ExpectRefused(405, "PUT /v1/completions", all);
  ExpectRefused(415, "POST /v1/completions", std::string(kKey) + "Content-Type: text/plain\r\n");
  ExpectRefused(415, "POST /v1/chat/completions", kKey);
  const Answer large =
      SendHead("POST /v1/completions", all, "Content-Length: 999999999")->ReadAnswer();
  EXPECT_EQ(large.status, 413);
  // Who may go on is told so.
  const auto client = SendHead("POST /v1/completions", all);
  EXPECT_EQ(client->Read(12), "HTTP/1.1 100");
}

// Browsers show a page the refusal only with CORS fields, and clients look for their own ids.
TEST_F(EarlyRefusals, AreLikeLaterOnes) {
  Serve("--api-key k --allowed-origins http://page");
  const auto client = SendHead(
      "POST /v1/completions", std::string(kJson) + "Origin: http://page\r\nX-Request-Id: mine\r\n");
  const Answer answer = client->ReadAnswer();
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.Field("Access-Control-Allow-Origin"), "http://page");
  EXPECT_EQ(answer.Field("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(answer.Field("X-Request-Id"), "mine");
}

// A body that came with its head is passed over, and the connection is kept.
TEST_F(EarlyRefusals, KeepTheConnectionOfWholeRequests) {
  Serve("--api-key k");
  Client client(port_);
  for (int i = 0; i < 3; ++i) {
    Post(client, kSmall);
    EXPECT_EQ(client.ReadAnswer().status, 401);
  }
  client.Send(RequestText("POST", "/v1/completions", kSmall, std::string(kJson) + kKey));
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

// A client that sends its body all the same gets to read the answer.
TEST_F(EarlyRefusals, ReachClientsThatGoOnSending) {
  Serve("--api-key k");
  Client client(port_);
  Post(client, std::string(4'000'000, 'x'));
  EXPECT_EQ(client.ReadAnswer().status, 401);
}

TEST_F(EarlyRefusals, OfADrainingServer) {
  Serve();
  Client running(port_);
  Post(running, R"({"prompt":[5],"max_tokens":40,"stream":true,"ignore_eos":true,
                   "return_token_ids":true})");
  running.Read(400);
  Client late(port_);
  late.Send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  Signal();
  ASSERT_TRUE(AwaitLog("draining"));
  late.Send(std::string(kJson) + "\r\n");
  const Answer answer = late.ReadAnswer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("shutting down"));
  EXPECT_EQ(answer.Field("Connection"), "close");
}

}  // namespace
}  // namespace spry
