// The memory that bodies may take, all connections together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/server_rig/server_rig.h"

namespace spry {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

// Bodies of over 64 KiB may take 3 MB together, small ones another.
constexpr int kAll = 4'000'000;
const HttpServerOptions kOptions = {.limits = {.all_bodies_bytes = kAll}};

std::string Hold(const std::string& id, size_t bytes) {
  return RequestText("POST", "/hold", std::string(bytes, 'h'), "X-Request-Id: " + id + "\r\n");
}

// The head of a request with a body of `bytes`.
std::string Head(size_t bytes) {
  return fmt::format("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", bytes);
}

void ExpectRefused(Client& client) {
  const Answer answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.Field("Retry-After"), "1");
  EXPECT_EQ(answer.Field("Connection"), "close");
  EXPECT_THAT(answer.body, HasSubstr(fmt::format("may take {} bytes of memory", kAll)));
  EXPECT_TRUE(client.IsEnded());
}

// True when a body of `bytes` is taken, within ten seconds.
bool Eventually(ServerRig& rig, size_t bytes) {
  for (int i = 0; i < 1000; ++i) {
    Client client(rig.port());
    client.Send(RequestText("POST", "/echo", std::string(bytes, 'b')));
    if (client.ReadAnswer().status == 200) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

TEST(Bodies, TakeNoMoreMemoryTogetherThanTheLimit) {
  ServerRig rig(kOptions);
  Client holds(rig.port());
  holds.Send(Hold("a", 2'900'000));
  rig.Exchange("a");
  Client neighbour(rig.port());
  for (int i = 0; i < 2; ++i) {
    // Known from its head, so the client need not send it.
    Client declares(rig.port());
    declares.Send(Head(200'000));
    ExpectRefused(declares);
    // Known only as it comes; the answer reaches a client that still sends.
    Client chunks(rig.port());
    chunks.Send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n");
    chunks.Send(std::string(200'000, 'c'));
    ExpectRefused(chunks);
    // Usual requests go on, over a kept connection.
    neighbour.Send(RequestText("POST", "/echo", std::string(60'000, 's')));
    EXPECT_EQ(neighbour.ReadAnswer().status, 200);
  }
  holds.Close();
  EXPECT_TRUE(rig.AwaitLeft(1));
  neighbour.Send(RequestText("POST", "/echo", std::string(2'900'000, 'l')));
  EXPECT_EQ(neighbour.ReadAnswer().status, 200);
}

// The limit holds for small ones too.
TEST(Bodies, SmallOnesHaveALimitOfTheirOwn) {
  ServerRig rig(kOptions);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kAll / 50'000; ++i) {
    clients.push_back(std::make_unique<Client>(rig.port()));
    clients.back()->Send(Hold(std::to_string(i), 50'000));
    rig.Exchange(std::to_string(i));
  }
  Client last(rig.port());
  last.Send(Head(50'000));
  ExpectRefused(last);
  Client without(rig.port());
  without.Get("/echo");
  EXPECT_EQ(without.ReadAnswer().status, 200);
  clients.pop_back();
  EXPECT_TRUE(Eventually(rig, 50'000));
}

TEST(Bodies, OnlyWhatHasComeIsCounted) {
  ServerRig rig(kOptions);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(std::make_unique<Client>(rig.port()));
    clients.back()->Send(Head(2'000'000) + "begun");
  }
  EXPECT_TRUE(rig.AwaitConnections(50));
  Client client(rig.port());
  client.Send(RequestText("POST", "/echo", std::string(2'900'000, 'l')));
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

// Whatever becomes of a request, its part comes back.
TEST(Bodies, EveryEndGivesBack) {
  HttpServerOptions options = kOptions;
  options.limits.body_time = milliseconds(300);
  ServerRig rig(options);
  const std::string most(2'900'000, 'm');
  const std::string unfinished = Head(most.size() + 1) + most;
  {
    Client leaves(rig.port());
    leaves.Send(unfinished);
  }
  EXPECT_TRUE(Eventually(rig, most.size()));
  {
    Client resets(rig.port());
    resets.Send(unfinished);
    resets.Reset();
  }
  EXPECT_TRUE(Eventually(rig, most.size()));
  Client stalls(rig.port());
  stalls.Send(unfinished);
  EXPECT_EQ(stalls.ReadAnswer().status, 408);
  EXPECT_TRUE(Eventually(rig, most.size()));
  Client breaks(rig.port());
  breaks.Send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2c4020\r\n" +
              most + "no line end");
  EXPECT_EQ(breaks.ReadAnswer().status, 400);
  EXPECT_TRUE(Eventually(rig, most.size()));
  Client dropped(rig.port());
  dropped.Send(RequestText("POST", "/drop", most));
  EXPECT_EQ(dropped.ReadAnswer().status, 500);
  EXPECT_TRUE(Eventually(rig, most.size()));
}

// A request that its handler keeps beyond the server's life.
TEST(Bodies, MayOutliveTheServer) {
  std::shared_ptr<HttpExchange> kept;
  {
    ServerRig rig(kOptions, [&](std::shared_ptr<HttpExchange> exchange) {
      exchange->Send({});
      kept = std::move(exchange);
    });
    Client client(rig.port());
    client.Send(RequestText("POST", "/", std::string(1000, 'k')));
    EXPECT_EQ(client.ReadAnswer().status, 200);
  }
  EXPECT_EQ(kept->request().body.size(), 1000u);
}

}  // namespace
}  // namespace spry
