// Many at once: mutated requests beside streams that must not notice, and thousands of idle
// streams.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/server_rig/server_rig.h"
#include "tests/support/cpu_time.h"

namespace spry {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  std::string Next() {
    std::string request = Seed();
    for (uint32_t i = 1 + Below(4); i > 0; --i) Mutate(request);
    return request;
  }

  uint32_t Below(size_t limit) { return random_() % static_cast<uint32_t>(limit); }

 private:
  std::string Seed() {
    switch (Below(4)) {
      case 0:
        return RequestText("GET", "/echo?a=b", "", "Accept: */*\r\nConnection: keep-alive\r\n");
      case 1: return RequestText("POST", "/echo", R"({"model":"m","prompt":"p","stream":true})");
      case 2:
        return "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
               "Expect: 100-continue\r\n\r\n5;a=b\r\nhello\r\n1f\r\n" +
               std::string(31, 'x') + "\r\n0\r\nTrailer: t\r\n\r\n";
      default: return RequestText("GET", "/ticks", "", "Authorization: Bearer key\r\n");
    }
  }

  void Mutate(std::string& text) {
    static constexpr std::string_view kPieces[] = {"\r\n",
                                                   "\n",
                                                   "\r",
                                                   "\r\n\r\n",
                                                   ":",
                                                   " ",
                                                   "\t",
                                                   "0",
                                                   "-1",
                                                   "99999999999999999999",
                                                   "Content-Length: 7\r\n",
                                                   "Transfer-Encoding: chunked\r\n",
                                                   "chunked",
                                                   ";",
                                                   "=",
                                                   "\"",
                                                   "HTTP/1.0",
                                                   "HTTP/9.9",
                                                   "Host: b\r\n",
                                                   "%00",
                                                   "\xff\xfe",
                                                   "GET / HTTP/1.1\r\n"};
    const size_t at = Below(text.size() + 1);
    switch (Below(6)) {
      case 0: text.insert(at, kPieces[Below(std::size(kPieces))]); break;
      case 1: text.erase(at, 1 + Below(20)); break;
      case 2: text.insert(at, 1, static_cast<char>(Below(256))); break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
        break;
      case 4: text.insert(at, text.substr(Below(text.size() + 1), Below(60))); break;
      default: text.insert(at, Below(100) == 0 ? 30000 : Below(300), 'A');
    }
  }

  std::mt19937 random_;
};

std::string AllTicks() {
  std::string ticks;
  for (int i = 0; i < 60; ++i) ticks += fmt::format("tick {}\n", i);
  return ticks;
}

TEST(Load, MutatedRequestsDisturbNobody) {
  ServerRig rig;
  const std::string whole = AllTicks();
  std::atomic<bool> done{false};
  std::atomic<int> streams{0};
  std::vector<std::thread> neighbours;
  for (int i = 0; i < 4; ++i) {
    neighbours.emplace_back([&] {
      Client client(rig.port());
      do {
        client.Get("/ticks");
        ASSERT_EQ(client.ReadAnswer().body, whole);
        ++streams;
      } while (!done);
    });
  }
  Mutator mutator(20240607);
  for (int i = 0; i < 1000; ++i) {
    Client client(rig.port());
    ASSERT_TRUE(client.is_connected());
    const std::string request = mutator.Next();
    const size_t cut = mutator.Below(request.size() + 1);
    client.Send(request.substr(0, cut));
    client.Send(request.substr(cut));
    if (mutator.Below(2) == 0) {
      client.FinishSending();
      client.ReadToEnd();  // the server ends it, whatever it thinks of the request
    } else if (mutator.Below(2) == 0) {
      client.Reset();
    }
  }
  done = true;
  for (std::thread& neighbour : neighbours) neighbour.join();
  EXPECT_GE(streams, 4);
  Client client(rig.port());
  client.Get("/echo");
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo ");
  client.Close();
  EXPECT_TRUE(rig.AwaitConnections(0));
}

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Load, ThousandsOfIdleStreams) {
  constexpr int kStreams = 2000;
  constexpr int kTicks = 20;
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  exchanges.reserve(kStreams);
  // The body is an usual chat request's; the handler moves out of it.
  const std::string body(4000, 'p');
  ServerRig rig({}, [&](const std::shared_ptr<HttpExchange>& exchange) {
    const std::string taken = std::move(exchange->request().body);
    EXPECT_EQ(taken.size(), body.size());
    exchange->StartStream({.content_type = "text/event-stream"});
    exchange->Flush();
    exchange->OnLeave([] { ADD_FAILURE() << "a client has left"; });
    exchanges.push_back(exchange);
  });
  std::vector<std::unique_ptr<Client>> clients;
  clients.reserve(kStreams);
  malloc_trim(0);  // what earlier tests freed must not hide what this one takes
  const int64_t before = ResidentBytes();
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<Client>(rig.port()));
    clients.back()->Send(RequestText("POST", "/v1/chat/completions", body));
  }
  int opened = 0;
  while (opened < kStreams) rig.OnLoop([&](HttpServer&) { opened = std::ssize(exchanges); });

  double cpu = 0;
  for (int tick = 0; tick < kTicks; ++tick) {
    rig.OnLoop([&](HttpServer&) {
      const double begin = ThreadCpuSeconds();
      for (int i = 0; i < kStreams; ++i) {
        exchanges[i]->Append(fmt::format("data: stream tick {:200}\n\n", tick));
        exchanges[i]->Flush();
      }
      cpu += ThreadCpuSeconds() - begin;
    });
  }
  const int64_t bytes_per_stream = (ResidentBytes() - before) / kStreams;
  fmt::print("{} idle streams: {} bytes of resident memory each, {:.0f} ns per streamed event\n",
             kStreams, bytes_per_stream, 1e9 * cpu / kStreams / kTicks);
  if (!kSanitized) {
    EXPECT_LE(bytes_per_stream, 64 << 10);
  }

  rig.OnLoop([&](HttpServer&) {
    for (const auto& exchange : exchanges) exchange->EndStream();
  });
  std::string whole;
  for (int tick = 0; tick < kTicks; ++tick)
    whole += fmt::format("data: stream tick {:200}\n\n", tick);
  for (const auto& client : clients) ASSERT_EQ(client->ReadAnswer().body, whole);
  clients.clear();
  EXPECT_TRUE(rig.AwaitConnections(0));
  exchanges.clear();
}

}  // namespace
}  // namespace spry
