// Streamed answers, and clients that leave, stall or are killed.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/allocation_counter.h"
#include "tests/server_rig/server_rig.h"

namespace spry {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string AllTicks() {
  std::string ticks;
  for (int i = 0; i < 60; ++i) ticks += fmt::format("tick {}\n", i);
  return ticks;
}

// `kept` is set on the I/O thread.
void AwaitKept(ServerRig& rig, const std::shared_ptr<HttpExchange>& kept) {
  bool there = false;
  while (!there) rig.OnLoop([&](HttpServer&) { there = kept != nullptr; });
}

TEST(Streams, OneChunkEachFlush) {
  ServerRig rig;
  Client client(rig.port());
  client.Get("/stream", "s");
  const auto exchange = rig.Exchange("s");
  rig.OnLoop([&](HttpServer&) {
    exchange->Append("one ");
    exchange->Append("chunk");
    exchange->Flush();
    exchange->Flush();  // nothing: no chunk, which would end the stream
    exchange->Append("last");
    exchange->EndStream();
    exchange->EndStream();  // after the end nothing has an effect
    exchange->Append("late");
    exchange->Flush();
  });
  client.Get("/echo");
  std::string head;
  while (!head.ends_with("\r\n\r\n")) head += client.Read(1);
  EXPECT_THAT(head, ::testing::HasSubstr("\r\nTransfer-Encoding: chunked\r\n"));
  const std::string body = "9\r\none chunk\r\n4\r\nlast\r\n0\r\n\r\n";
  EXPECT_EQ(client.Read(body.size()), body);
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo ");
  rig.Forget("s");
}

TEST(Streams, LeavingIsNoticedAtOnce) {
  ServerRig rig;
  int left = 0;
  for (const char* const path : {"/hold", "/stream"}) {
    for (const bool by_reset : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", path, by_reset ? "RST" : "FIN"));
      Client client(rig.port());
      client.Get(path, "id");
      rig.Exchange("id");
      const auto begin = std::chrono::steady_clock::now();
      by_reset ? client.Reset() : client.Close();
      ASSERT_TRUE(rig.AwaitLeft(++left));
      EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(1));
      EXPECT_EQ(rig.connections(), 0);
    }
  }
  // Having sent part of a next request does not hide it.
  Client client(rig.port());
  client.Get("/hold", "id");
  client.Send("GET /ec");
  rig.Exchange("id");
  EXPECT_EQ(rig.left(), left);
  client.Close();
  EXPECT_TRUE(rig.AwaitLeft(left + 1));
}

// What nginx and uvicorn do; see http_server.h.
TEST(Streams, HalfClosedClients) {
  ServerRig rig;
  Client waits(rig.port());
  waits.Get("/hold", "id");
  rig.Exchange("id");
  waits.FinishSending();
  EXPECT_TRUE(rig.AwaitLeft(1));
  EXPECT_TRUE(waits.IsEnded());

  Client asks(rig.port());
  asks.Send(RequestText("GET", "/echo") + RequestText("GET", "/big") + "GET /half");
  asks.FinishSending();
  EXPECT_EQ(asks.ReadAnswer().body, "GET /echo ");
  EXPECT_EQ(asks.ReadAnswer().body.size(), size_t{8 << 20});
  EXPECT_TRUE(asks.IsEnded());
  EXPECT_EQ(rig.left(), 1);
}

TEST(Streams, CallsAfterLeavingDoNothing) {
  ServerRig rig;
  Client client(rig.port());
  client.Get("/stream", "id");
  const auto exchange = rig.Exchange("id");
  client.Reset();
  ASSERT_TRUE(rig.AwaitLeft(1));
  rig.OnLoop([&](HttpServer&) {
    exchange->Append("x");
    exchange->Flush();
    exchange->OnLeave([] { FAIL(); });
    exchange->Send({});
    exchange->EndStream();
  });
  EXPECT_EQ(rig.left(), 1);
}

// A stream that its handler forgets can't be told from a whole one but by a cut connection.
TEST(Streams, ForgottenOnesAreCut) {
  std::shared_ptr<HttpExchange> kept;
  ServerRig rig({}, [&](std::shared_ptr<HttpExchange> exchange) { kept = std::move(exchange); });
  Client client(rig.port());
  client.Get("/");
  AwaitKept(rig, kept);
  rig.OnLoop([&](HttpServer&) {
    kept->StartStream({});
    kept->Append("part");
    kept->Flush();
    kept.reset();
  });
  const std::string all = client.ReadToEnd();
  EXPECT_THAT(all, ::testing::EndsWith("4\r\npart\r\n"));
}

// All that waits for readers has a limit, and who reads does not pay for who does not.
TEST(Streams, WhoDoesNotReadIsCutWhileOthersGoOn) {
  ServerRig rig({.limits = {.all_answers_bytes = 10'000'000, .unsent_bytes = 100'000}});
  Client slow(rig.port());
  slow.Get("/stream", "slow");
  Client reader(rig.port());
  reader.Get("/stream", "reader");
  const auto to_slow = rig.Exchange("slow");
  const auto to_reader = rig.Exchange("reader");
  std::string received;
  std::thread reading([&] { received = reader.ReadAnswer().body; });
  // Far more than the kernel's buffers hold.
  const std::string piece(10000, 'p');
  int pieces = 0;
  for (; pieces < 3000 && rig.left() == 0; ++pieces) {
    rig.OnLoop([&](HttpServer&) {
      for (HttpExchange* exchange : {to_slow.get(), to_reader.get()}) {
        exchange->Append(piece);
        exchange->Flush();
      }
    });
  }
  EXPECT_EQ(rig.left(), 1);
  EXPECT_EQ(to_slow->cut(), "too much of all answers together waits for clients to read it");
  rig.OnLoop([&](HttpServer&) { to_reader->EndStream(); });
  reading.join();
  EXPECT_EQ(received.size(), pieces * piece.size());
  EXPECT_EQ(to_reader->cut(), "");
  EXPECT_EQ(rig.connections(), 1);
  rig.Forget("reader");
}

// One answer may be as large as it likes; who doesn't read it has the time of a write.
TEST(Streams, StalledWritesTimeOut) {
  ServerRig rig({.limits = {.unsent_bytes = 1000, .stall_time = milliseconds(500)}});
  Client stalls(rig.port());
  stalls.Get("/big");
  Client reads(rig.port());
  reads.Get("/big");
  std::string body;
  for (int i = 0; i < 8; ++i) {  // slower than stall_time, but with progress
    body += reads.Read(1 << 20);
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_EQ(body.size(), size_t{8 << 20});
  EXPECT_TRUE(rig.AwaitConnections(1));
  EXPECT_LT(stalls.ReadToEnd().size(), size_t{8 << 20});
}

TEST(Streams, SteadyOnesAllocateNothing) {
  ServerRig rig;
  Client client(rig.port());
  client.Get("/stream", "id");
  const auto exchange = rig.Exchange("id");
  std::string received;
  std::thread reading([&] { received = client.ReadAnswer().body; });
  const std::string event(200, 'e');
  uint64_t allocations = 0;
  constexpr int kEvents = 1000;
  rig.OnLoop([&](HttpServer&) {
    const auto send = [&] {
      for (int i = 0; i < kEvents; ++i) {
        exchange->Append(event);
        exchange->Flush();
      }
    };
    send();
    std::this_thread::sleep_for(milliseconds(100));
    const uint64_t before = ThreadAllocations();
    send();
    allocations = ThreadAllocations() - before;
    exchange->EndStream();
  });
  reading.join();
  EXPECT_EQ(received.size(), 2 * kEvents * event.size());
  EXPECT_EQ(allocations, 0u);
  rig.Forget("id");
}

// Clients are killed at random moments; those who stay get every byte.
TEST(Streams, KillStorm) {
  ServerRig rig;
  const std::string whole = AllTicks();
  std::mt19937 random(7);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<Client>> victims;
    std::vector<std::unique_ptr<Client>> witnesses;
    for (int i = 0; i < 20; ++i) {
      victims.push_back(std::make_unique<Client>(rig.port()));
      victims.back()->Get(i % 5 != 0 ? "/ticks" : "/big");
      if (i % 4 != 0) continue;
      witnesses.push_back(std::make_unique<Client>(rig.port()));
      witnesses.back()->Get("/ticks");
    }
    for (size_t i = 0; i < victims.size(); ++i) {
      if (random() % 3 == 0) victims[i]->Read(random() % (i % 5 != 0 ? 500 : 100000));
      random() % 2 == 0 ? victims[i]->Close() : victims[i]->Reset();
    }
    for (const auto& witness : witnesses) ASSERT_EQ(witness->ReadAnswer().body, whole);
  }
  EXPECT_TRUE(rig.AwaitConnections(0));
}

TEST(Streams, DescriptorsAreGivenBack) {
  const int before = OpenDescriptors();
  {
    ServerRig rig;
    const int idle = OpenDescriptors();
    for (int round = 0; round < 3; ++round) {
      std::vector<std::unique_ptr<Client>> clients;
      for (int i = 0; i < 50; ++i) {
        clients.push_back(std::make_unique<Client>(rig.port()));
        clients.back()->Get(i % 2 == 0 ? "/echo" : "/hold", fmt::format("{}", i));
      }
      EXPECT_TRUE(rig.AwaitConnections(50));
      clients.clear();
      EXPECT_TRUE(rig.AwaitConnections(0));
      EXPECT_EQ(OpenDescriptors(), idle);
    }
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(Streams, StopAcceptingDrains) {
  ServerRig rig;
  Client idle(rig.port());
  idle.Get("/echo");
  EXPECT_EQ(idle.ReadAnswer().status, 200);
  Client held(rig.port());
  held.Get("/hold", "held");
  Client streamed(rig.port());
  streamed.Get("/stream", "streamed");
  const auto hold = rig.Exchange("held");
  const auto stream = rig.Exchange("streamed");
  rig.OnLoop([](HttpServer& server) { server.StopAccepting(); });
  EXPECT_TRUE(idle.IsEnded());
  EXPECT_FALSE(Client(rig.port()).is_connected());
  EXPECT_EQ(rig.connections(), 2);
  rig.OnLoop([&](HttpServer&) {
    hold->Send({.body = "1"});
    stream->Append("2");
    stream->EndStream();
  });
  const Answer answer = held.ReadAnswer();
  EXPECT_EQ(answer.body, "1");
  EXPECT_EQ(answer.Field("Connection"), "close");
  EXPECT_TRUE(held.IsEnded());
  EXPECT_EQ(streamed.ReadAnswer().body, "2");
  EXPECT_TRUE(streamed.IsEnded());
  held.Close();
  streamed.Close();
  EXPECT_TRUE(rig.AwaitConnections(0));
  EXPECT_EQ(rig.left(), 0);
  rig.Forget("held");
  rig.Forget("streamed");
}

TEST(Streams, StopCutsOffWhatIsUnfinished) {
  std::shared_ptr<HttpExchange> kept;
  std::atomic<int> left{0};
  auto rig = std::make_unique<ServerRig>(HttpServerOptions{},
                                         [&](const std::shared_ptr<HttpExchange>& exchange) {
                                           exchange->OnLeave([&] { ++left; });
                                           kept = exchange;
                                         });
  Client client(rig->port());
  client.Get("/");
  AwaitKept(*rig, kept);
  rig.reset();
  EXPECT_EQ(left, 1);
  EXPECT_TRUE(client.IsEnded());
  kept->Send({});  // harmless, though the server is gone
}

// A callback that finds no memory is called again the next time.
TEST(Streams, AWatcherOutlivesWhatItThrows) {
  const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  std::atomic<int> calls{0};
  {
    ServerRig rig;
    rig.OnLoop([&](HttpServer& server) {
      server.Watch(event, [&] {
        uint64_t count = 0;
        EXPECT_EQ(read(event, &count, sizeof count), ssize_t{sizeof count});
        if (++calls < 3) throw std::bad_alloc();
      });
    });
    for (int i = 1; i <= 3; ++i) {
      eventfd_write(event, 1);
      while (calls < i) std::this_thread::yield();
    }
    Client client(rig.port());
    client.Get("/echo");
    EXPECT_EQ(client.ReadAnswer().status, 200);
  }
  close(event);
}

}  // namespace
}  // namespace spry
