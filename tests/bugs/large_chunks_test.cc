// A stream of one large chunk (echo) and small ones behind it was cut as soon as the second one
// came, though its client was reading, and the log called it finished.
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/server_rig/server_rig.h"

namespace spry {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLarge = 24'000'000;  // more than the kernel's buffers hold

void SendLargeAndSmall(ServerRig& rig, HttpExchange& exchange) {
  rig.OnLoop([&](HttpServer&) {
    exchange.Append(std::string(kLarge, 'l'));
    exchange.Flush();
  });
  for (int i = 0; i < 20; ++i) {
    rig.OnLoop([&](HttpServer&) {
      exchange.Append("small");
      exchange.Flush();
    });
  }
  rig.OnLoop([&](HttpServer&) { exchange.EndStream(); });
}

// In steps that are longer than the stall time together, never without a byte for as long.
TEST(LargeChunks, ComeWholeToAClientThatReads) {
  ServerRig rig({.limits = {.write_time = milliseconds(600), .stall_time = milliseconds(300)}});
  Client client(rig.port());
  client.Get("/stream", "a");
  const auto exchange = rig.Exchange("a");
  std::thread sending([&] { SendLargeAndSmall(rig, *exchange); });
  std::string all;
  for (int i = 0; i < 24; ++i) {
    all += client.Read(1'000'000);
    std::this_thread::sleep_for(milliseconds(50));
  }
  sending.join();
  EXPECT_EQ(exchange->cut(), "");
  rig.Forget("a");
  // The rest: the end of the large chunk, and the small ones.
  while (all.size() < kLarge || !all.ends_with("small\r\n0\r\n\r\n")) {
    const std::string more = client.Read(1);
    ASSERT_FALSE(more.empty());
    all += more;
  }
}

// So slow that the kernel never asks for more within the time.
TEST(LargeChunks, AClientThatReadsLittleIsNotOneThatDoesNot) {
  ServerRig rig({.limits = {.stall_time = milliseconds(300)}});
  Client client(rig.port());
  client.Get("/stream", "a");
  const auto exchange = rig.Exchange("a");
  rig.OnLoop([&](HttpServer&) {
    exchange->Append(std::string(kLarge, 'l'));
    exchange->Flush();
  });
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(client.Read(70'000).size(), 70'000u);
    std::this_thread::sleep_for(milliseconds(40));
  }
  EXPECT_EQ(rig.left(), 0);
  EXPECT_EQ(exchange->cut(), "");
  // And then it stops.
  EXPECT_TRUE(rig.AwaitLeft(1));
  EXPECT_EQ(exchange->cut(), "the client does not read its answer");
}

// Behind the end of the answer there is nobody else to tell.
TEST(LargeChunks, ACutBehindTheEndIsTold) {
  std::string told;
  int64_t unsent = 0;
  {
    HttpServerOptions options{.limits = {.stall_time = milliseconds(200)}};
    options.on_cut = [&](const HttpCut& cut) {
      told = std::string(cut.request_id) + ": " + std::string(cut.why);
      unsent = cut.unsent;
    };
    ServerRig rig(std::move(options));
    Client client(rig.port());
    client.Get("/stream", "mine");
    SendLargeAndSmall(rig, *rig.Exchange("mine"));
    rig.Forget("mine");
    EXPECT_TRUE(rig.AwaitConnections(0));
  }
  EXPECT_EQ(told, "mine: the client does not read its answer");
  EXPECT_GT(unsent, 1'000'000);
}

}  // namespace
}  // namespace spry
