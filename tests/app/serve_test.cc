// spry serve from outside: its end, its log and its flags. The null device takes 20 ms a token, so
// an answer of 60 tokens is still running when a signal comes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/app/serve_run.h"

namespace spry {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

using ServeTest = ServeRun;

constexpr const char* kStream = R"({"prompt":[5],"max_tokens":60,"stream":true,"ignore_eos":true,
                                    "return_token_ids":true})";
constexpr const char* kWhole = R"({"prompt":[5],"max_tokens":60,"ignore_eos":true})";

TEST_F(ServeTest, TheDocumentNamesEveryFlag) {
  const std::string document = ReadText(SPRY_SOURCE_DIR "/docs/server.md");
  const std::string help = Spry("serve --help").out;
  int flags = 0;
  for (size_t at = 0; (at = help.find("\n  --", at)) != std::string::npos; ++flags) {
    at += 3;
    const std::string flag = help.substr(at, help.find_first_of(" ,\n", at) - at);
    EXPECT_THAT(document, HasSubstr("`" + flag)) << flag;
  }
  EXPECT_GT(flags, 30);
}

TEST_F(ServeTest, OneSignalLetsAnswersEnd) {
  Serve();
  Client client(port_);
  Post(client, kStream);
  client.Read(400);  // some of it has come
  Signal();
  const std::string rest = client.ReadToEnd();
  EXPECT_THAT(rest, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_THAT(rest, EndsWith("data: [DONE]\n\n\r\n0\r\n\r\n"));
  client.Close();
  EXPECT_EQ(Wait(), 0);
  EXPECT_THAT(Log(), Not(HasSubstr("cutting")));
}

// By a second signal, or when the time is over.
TEST_F(ServeTest, CutStreamsEndWithAnError) {
  for (const bool by_signal : {true, false}) {
    Serve(by_signal ? "" : "--shutdown-timeout 0");
    Client stream(port_);
    Post(stream, kStream);
    stream.Read(400);  // some of it has come
    Client whole(port_);
    Post(whole, kWhole);
    ASSERT_TRUE(AwaitLog("serving"));
    std::this_thread::sleep_for(milliseconds(50));
    Signal();
    if (by_signal) {
      ASSERT_TRUE(AwaitLog("draining"));
      Signal();
    }
    const std::string rest = stream.ReadToEnd();
    const std::string error =
        R"({"error":{"message":"the server was stopped before this answer was complete",)"
        R"("type":"server_error","param":null,"code":"service_unavailable"}})";
    EXPECT_THAT(rest, HasSubstr("data: " + error + "\n\ndata: [DONE]\n\n\r\n0\r\n\r\n"));
    EXPECT_THAT(rest, Not(HasSubstr("\"finish_reason\":\"length\"")));
    const Answer answer = whole.ReadAnswer();
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(answer.body, error);
    EXPECT_EQ(Wait(), 0);
    EXPECT_THAT(Log(), HasSubstr("cutting running=2"));
  }
}

// A client that takes nothing does not hold up the end.
TEST_F(ServeTest, StalledClientsAreCutWithoutWaiting) {
  Serve();
  Client client(port_);
  // Chunks that are more than the sockets hold.
  Post(client, R"({"prompt":[5],"max_tokens":60,"stream":true,"ignore_eos":true,"n":64,
                   "logprobs":20,"temperature":1,"seed":1})");
  std::this_thread::sleep_for(milliseconds(500));
  Signal();
  ASSERT_TRUE(AwaitLog("draining"));
  const auto begin = steady_clock::now();
  Signal();
  EXPECT_EQ(Wait(), 0);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(5));
}

// Token ids of far more than the model takes, which are refused once they have been read.
std::string LargeBody(int ids) {
  std::string list = "5";
  for (int i = 1; i < ids; ++i) list += ",5";
  return "{\"prompt\":[" + list + "]}";
}

// Clients leave while they send, while their request waits to be read or is being read, and later.
TEST_F(ServeTest, KilledClientsWithLargeRequestsDisturbNobody) {
  Serve("--max-num-seqs 64");
  const std::string body = LargeBody(20'000);
  const std::string request =
      RequestText("POST", "/v1/completions", body, "Content-Type: application/json\r\n");
  std::mt19937 random(11);
  for (int round = 0; round < 3; ++round) {
    Client witness(port_);
    Post(witness, kStream);
    std::vector<std::unique_ptr<Client>> victims;
    for (int i = 0; i < 60; ++i) {
      victims.push_back(std::make_unique<Client>(port_));
      const bool whole = random() % 3 != 0;
      victims.back()->Send(
          std::string_view(request).substr(0, whole ? request.size() : random() % request.size()));
      if (random() % 2 == 0) random() % 2 == 0 ? victims.back()->Close() : victims.back()->Reset();
    }
    Client stays(port_);
    stays.Send(request);
    const Answer refused = stays.ReadAnswer();
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, HasSubstr("maximum context length is 64 tokens"));
    victims.clear();
    EXPECT_THAT(witness.ReadAnswer().body, HasSubstr("\"finish_reason\":\"length\""));
  }
  Client info(port_);
  info.Get("/metrics");
  EXPECT_THAT(info.ReadAnswer().body, HasSubstr("vllm:num_requests_running{engine=\"0\","
                                                "model_name=\"m\"} 0\n"));
  info.Close();
  Signal();
  EXPECT_EQ(Wait(), 0);
}

// One is in work and others wait.
TEST_F(ServeTest, TheEndDoesNotWaitForLargeRequests) {
  Serve();
  const std::string body = LargeBody(5'000'000);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(port_));
    Post(*clients.back(), body);
  }
  Signal();
  ASSERT_TRUE(AwaitLog("draining"));
  Signal();
  int told = 0;
  for (const auto& client : clients) {
    const Answer answer = client->ReadAnswer();
    told += answer.status == 503 || answer.status == 400 ? 1 : 0;
  }
  EXPECT_EQ(told, 4);
  EXPECT_EQ(Wait(), 0);
}

TEST_F(ServeTest, ARequestsLineHasItsTimes) {
  Serve();
  Client client(port_);
  Post(client, R"({"prompt":[5],"max_tokens":3,"request_id":"mine"})");
  EXPECT_EQ(client.ReadAnswer().status, 200);
  ASSERT_TRUE(AwaitLog("request id=cmpl-mine"));
  const std::string ms = "=[0-9]+\\.[0-9][0-9] ";
  EXPECT_THAT(Log(), ::testing::ContainsRegex(
                         "endpoint=completions prompt_tokens=1 cached_tokens=0 output_tokens=3 "
                         "prompt_ms" +
                         ms + "queue_ms" + ms + "prefill_ms" + ms + "first_token_ms" + ms +
                         "decode_ms" + ms + "total_ms" + ms + "finish=length error=-"));
}

}  // namespace
}  // namespace spry
