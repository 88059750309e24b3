// The whole server, from sockets to an engine on the null device, with a thousand clients that
// break off, stall, split and damage what they send, beside streams that must not notice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/server_hostile/whole_server.h"
#include "tests/server_rig/server_rig.h"

namespace spry {
namespace {

constexpr int kClients = 1000;
constexpr int kAttackers = 3;  // threads
constexpr int kWitnesses = 4;
constexpr size_t kHeldOpen = 20;  // of an attacker

constexpr std::string_view kBodies[] = {
    R"({"prompt":"hello","max_tokens":400,"stream":true,"ignore_eos":true})",
    R"({"prompt":[[300,301],[302]],"n":3,"max_tokens":60,"temperature":0.7,"seed":1})",
    R"({"prompt":"x","max_tokens":9,"stream":true,"stream_options":{"include_usage":true},"n":2})",
    R"({"prompt":"x","max_tokens":5,"echo":true,"logprobs":2,"stop":["w300"],"min_tokens":2})",
};

std::string Post(std::string_view body, std::string_view fields = "") {
  return RequestText("POST", "/v1/completions", body,
                     fmt::format("Content-Type: application/json\r\n{}", fields));
}

// The time is all that may differ between two answers to one request.
std::string WithoutTime(std::string body) {
  constexpr std::string_view kKey = "\"created\":";
  for (size_t at = 0; (at = body.find(kKey, at)) != std::string::npos; at += kKey.size()) {
    const size_t digits = at + kKey.size();
    body.erase(digits, body.find_first_not_of("0123456789", digits) - digits);
  }
  return body;
}

// The answer to a witness, whose request is its own.
std::string Ask(Client& client, int witness) {
  const std::string body = fmt::format(
      R"({{"prompt":"witness {}","max_tokens":60,"stream":true,"return_token_ids":true}})",
      witness);
  client.Send(Post(body, fmt::format("X-Request-Id: {}\r\n", witness)));
  const Answer answer = client.ReadAnswer();
  return fmt::format("{} {}", answer.status, WithoutTime(answer.body));
}

class Attacker {
 public:
  Attacker(int port, uint32_t seed) : port_(port), random_(seed) {}

  void Attack() {
    auto client = std::make_unique<Client>(port_);
    ASSERT_TRUE(client->is_connected());
    switch (Below(5)) {
      case 0: return LeaveAmid(*client);
      case 1: return ReadSlowly(*client);
      case 2: return SendPart(std::move(client));
      case 3: return SendInPieces(*client);
      default: return SendDamaged(std::move(client));
    }
  }

 private:
  size_t Below(size_t end) { return random_() % end; }
  std::string SomeRequest() { return Post(kBodies[Below(std::size(kBodies))]); }
  void Part(Client& client) { Below(2) == 0 ? client.Close() : client.Reset(); }

  void LeaveAmid(Client& client) {
    client.Send(SomeRequest());
    if (Below(3) != 0) client.Read(Below(300));  // each answer is longer
    Part(client);
  }

  void ReadSlowly(Client& client) {
    client.Send(Post(kBodies[0], "Connection: close\r\n"));
    for (int i = 0; i < 5; ++i) {
      client.Read(1 + Below(200));
      std::this_thread::sleep_for(std::chrono::milliseconds(Below(3)));
    }
    if (Below(2) == 0) return Part(client);
    const std::string rest = client.ReadToEnd();
    EXPECT_TRUE(rest.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n")) << rest.substr(0, 200);
  }

  // And then nothing, for long.
  void SendPart(std::unique_ptr<Client> client) {
    const std::string request = SomeRequest();
    client->Send(std::string_view(request).substr(0, Below(request.size())));
    Hold(std::move(client));
  }

  void SendInPieces(Client& client) {
    const std::string request = Post(kBodies[1]);
    for (size_t at = 0; at < request.size();) {
      const size_t size = 1 + Below(60);
      client.Send(std::string_view(request).substr(at, size));
      at += size;
    }
    EXPECT_EQ(client.ReadAnswer().status, 200);
  }

  void SendDamaged(std::unique_ptr<Client> client) {
    std::string request = SomeRequest();
    for (size_t i = 1 + Below(4); i > 0; --i) Damage(request);
    const size_t cut = Below(request.size() + 1);
    client->Send(std::string_view(request).substr(0, cut));
    client->Send(std::string_view(request).substr(cut));
    if (Below(3) == 0) return Hold(std::move(client));
    client->FinishSending();
    if (Below(2) == 0) client->ReadToEnd();  // the server ends it, whatever it makes of it
  }

  void Damage(std::string& text) {
    static constexpr std::string_view kPieces[] = {"\r\n",
                                                   "\r\n\r\n",
                                                   "0",
                                                   "-1",
                                                   "\"",
                                                   "{",
                                                   "]",
                                                   "\\ud800",
                                                   "\xff",
                                                   ":",
                                                   "null",
                                                   "1e999",
                                                   "[[[[",
                                                   "true",
                                                   "chunked",
                                                   "%00",
                                                   "Content-Length: 3\r\n",
                                                   "Transfer-Encoding: chunked\r\n",
                                                   "\"n\":99999,"};
    const size_t at = Below(text.size());
    switch (Below(5)) {
      case 0: text.insert(at, kPieces[Below(std::size(kPieces))]); break;
      case 1: text.erase(at, 1 + Below(20)); break;
      case 2: text[at] = static_cast<char>(Below(256)); break;
      case 3: text.insert(at, text.substr(Below(text.size()), Below(60))); break;
      default: text.insert(at, Below(50) == 0 ? 40000 : Below(300), 'A');
    }
    if (text.empty()) text = "x";
  }

  void Hold(std::unique_ptr<Client> client) {
    held_.push_back(std::move(client));
    if (held_.size() < kHeldOpen) return;
    const size_t which = Below(held_.size());
    Part(*held_[which]);
    held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  int port_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Client>> held_;
};

TEST(HostileClients, DisturbNobody) {
  static uint32_t repetition = 0;
  const uint32_t seed = 1000 * ++repetition;
  WholeServer server;
  std::vector<std::string> wanted;
  for (int i = 0; i < kWitnesses; ++i) {
    Client client(server.port());
    wanted.push_back(Ask(client, i));
    ASSERT_TRUE(wanted.back().starts_with("200 data: {")) << wanted.back();
  }
  std::atomic<bool> done{false};
  std::atomic<int> streams{0};
  std::vector<std::thread> witnesses;
  for (int i = 0; i < kWitnesses; ++i) {
    witnesses.emplace_back([&, i] {
      Client client(server.port());
      do {
        ASSERT_EQ(Ask(client, i), wanted[i]);
        ++streams;
      } while (!done);
    });
  }
  std::vector<std::thread> attackers;
  for (int i = 0; i < kAttackers; ++i) {
    attackers.emplace_back([&, i] {
      Attacker attacker(server.port(), seed + i);
      for (int number = i; number < kClients; number += kAttackers) attacker.Attack();
    });
  }
  for (std::thread& thread : attackers) thread.join();
  done = true;
  for (std::thread& thread : witnesses) thread.join();
  EXPECT_GE(streams, kWitnesses);
  EXPECT_TRUE(server.AwaitQuiet());
  Client client(server.port());
  EXPECT_EQ(Ask(client, 0), wanted[0]);
}

}  // namespace
}  // namespace spry
