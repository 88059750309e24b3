// How requests are read and answered over one connection.
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
using ::testing::Not;
using ::testing::StartsWith;

TEST(Requests, AreAnsweredAndTheConnectionIsKept) {
  ServerRig rig;
  Client client(rig.port());
  for (int i = 0; i < 3; ++i) {
    client.Send(RequestText("POST", "/echo?x=1", fmt::format("body {}", i)));
    const Answer answer = client.ReadAnswer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, fmt::format("POST /echo body {}", i));
    EXPECT_EQ(answer.Field("Content-Type"), "text/plain");
    EXPECT_EQ(answer.Field("Connection"), "");
    EXPECT_THAT(answer.Field("Date"), ::testing::EndsWith(" GMT"));
  }
  EXPECT_EQ(rig.connections(), 1);
}

TEST(Requests, ComeInAnyPieces) {
  ServerRig rig;
  const std::string chunked =
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;name=\"v\"\r\nabc\r\n0a\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
  const std::string all =
      RequestText("POST", "/echo", "whole") + "\r\n" + chunked + RequestText("GET", "/");
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, all.size()}) {
    Client client(rig.port());
    for (size_t i = 0; i < all.size(); i += piece) {
      client.Send(all.substr(i, piece));
      if (piece < 3) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    EXPECT_EQ(client.ReadAnswer().body, "POST /echo whole") << piece;
    EXPECT_EQ(client.ReadAnswer().body, "POST /echo abc0123456789") << piece;
    EXPECT_EQ(client.ReadAnswer().body, "GET / ") << piece;
  }
}

TEST(Requests, PipelinedOnesAreAnsweredInOrder) {
  ServerRig rig;
  Client client(rig.port());
  client.Send(RequestText("GET", "/hold", "", "X-Request-Id: slow\r\n") +
              RequestText("GET", "/ticks") + RequestText("GET", "/echo"));
  const auto exchange = rig.Exchange("slow");
  rig.OnLoop([&](HttpServer&) { exchange->Send({.body = "\"slow\""}); });
  EXPECT_EQ(client.ReadAnswer().body, "\"slow\"");
  EXPECT_THAT(client.ReadAnswer().body, StartsWith("tick 0\ntick 1\n"));
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo ");
  EXPECT_EQ(rig.left(), 0);
  rig.Forget("slow");
}

// More requests ahead of their turn than the server reads at once.
TEST(Requests, ManyPipelinedOnes) {
  ServerRig rig;
  Client client(rig.port());
  constexpr int kCount = 3000;
  std::thread sender([&] {
    client.Send(RequestText("GET", "/hold", "", "X-Request-Id: first\r\n"));
    for (int i = 0; i < kCount; ++i) client.Send(RequestText("POST", "/echo", std::to_string(i)));
  });
  const auto exchange = rig.Exchange("first");
  std::this_thread::sleep_for(milliseconds(50));
  rig.OnLoop([&](HttpServer&) { exchange->Send({.body = "0"}); });
  EXPECT_EQ(client.ReadAnswer().body, "0");
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(client.ReadAnswer().body, fmt::format("POST /echo {}", i));
  }
  sender.join();
  EXPECT_EQ(rig.left(), 0);
  rig.Forget("first");
}

TEST(Requests, Head) {
  ServerRig rig;
  Client client(rig.port());
  client.Send(RequestText("HEAD", "/echo") + RequestText("HEAD", "/ticks") +
              RequestText("GET", "/echo"));
  const Answer sized = client.ReadAnswer(/*has_body=*/false);
  EXPECT_EQ(sized.status, 200);
  EXPECT_EQ(sized.Field("Content-Length"), "11");
  const Answer streamed = client.ReadAnswer(/*has_body=*/false);
  EXPECT_EQ(streamed.Field("Transfer-Encoding"), "chunked");
  EXPECT_EQ(client.ReadAnswer().body, "GET /echo ");
}

TEST(Requests, OptionsReachTheHandler) {
  ServerRig rig;
  Client client(rig.port());
  client.Send(RequestText("OPTIONS", "*") + RequestText("BREW", "http://host:80/pot?x"));
  EXPECT_EQ(client.ReadAnswer().body, "OPTIONS * ");
  EXPECT_EQ(client.ReadAnswer().body, "BREW /pot ");
}

TEST(Requests, ExpectContinue) {
  ServerRig rig({.limits = {.body_bytes = 100}});
  Client client(rig.port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadAnswer().status, 100);
  client.Send("body");
  EXPECT_EQ(client.ReadAnswer().body, "POST /echo body");
  // A body that is there already needs no invitation, one that is too long gets none.
  client.Send(RequestText("POST", "/echo", "body", "Expect: 100-continue\r\n"));
  EXPECT_EQ(client.ReadAnswer().body, "POST /echo body");
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadAnswer().status, 413);
  EXPECT_TRUE(client.IsEnded());

  Client other(rig.port());
  other.Send(RequestText("POST", "/echo", "body", "Expect: miracles\r\n"));
  EXPECT_EQ(other.ReadAnswer().status, 417);
}

TEST(Requests, Http10) {
  ServerRig rig;
  Client once(rig.port());
  once.Send("GET /echo HTTP/1.0\r\n\r\n");
  const Answer answer = once.ReadAnswer();
  EXPECT_EQ(answer.body, "GET /echo ");
  EXPECT_EQ(answer.Field("Connection"), "close");
  EXPECT_TRUE(once.IsEnded());

  Client kept(rig.port());
  kept.Send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(kept.ReadAnswer().Field("Connection"), "keep-alive");
  // A stream has no length, and 1.0 no chunks: it ends with the connection.
  kept.Send("GET /ticks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const Answer stream = kept.ReadAnswer();
  EXPECT_EQ(stream.Field("Transfer-Encoding"), "");
  EXPECT_THAT(stream.body, StartsWith("tick 0\n"));
  EXPECT_THAT(stream.body, ::testing::EndsWith("tick 59\n"));
}

TEST(Requests, ConnectionClose) {
  ServerRig rig;
  Client client(rig.port());
  client.Send(RequestText("GET", "/echo", "", "Connection: close\r\n") +
              RequestText("GET", "/echo"));
  EXPECT_EQ(client.ReadAnswer().Field("Connection"), "close");
  EXPECT_TRUE(client.IsEnded());
}

TEST(Requests, IdsAreEchoedOrMade) {
  ServerRig rig;
  Client client(rig.port());
  client.Get("/echo", "my-id_1");
  EXPECT_EQ(client.ReadAnswer().Field("X-Request-Id"), "my-id_1");
  for (const std::string& bad : {std::string(129, 'x'), std::string("caf\xc3\xa9"),
                                 std::string("two words"), std::string()}) {
    client.Get("/echo", bad);
    const std::string made = client.ReadAnswer().Field("X-Request-Id");
    EXPECT_EQ(made.size(), 32u) << bad;
    EXPECT_EQ(made.find_first_not_of("0123456789abcdef"), std::string::npos);
  }
  client.Get("/ticks", "streamed");
  EXPECT_EQ(client.ReadAnswer().Field("X-Request-Id"), "streamed");
}

TEST(Requests, DroppedOnesAreAnswered) {
  ServerRig rig;
  Client client(rig.port());
  client.Send(RequestText("GET", "/drop") + RequestText("GET", "/echo"));
  EXPECT_EQ(client.ReadAnswer().status, 500);
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

struct Bad {
  const char* name;
  std::string bytes;
  int status = 400;
};

std::string Post(std::string_view fields, std::string_view body = "") {
  return fmt::format("POST /echo HTTP/1.1\r\nHost: a\r\n{}\r\n{}", fields, body);
}

std::vector<Bad> BadRequests() {
  using namespace std::string_literals;
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  return {
      {"length and chunks", Post("Content-Length: 5\r\n" + chunked, "0\r\n\r\n")},
      {"chunks and length", Post(chunked + "Content-Length: 5\r\n", "0\r\n\r\n")},
      {"two lengths", Post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello")},
      {"two equal lengths", Post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello")},
      {"a list of lengths", Post("Content-Length: 5, 5\r\n", "hello")},
      {"a signed length", Post("Content-Length: +5\r\n", "hello")},
      {"a negative length", Post("Content-Length: -5\r\n", "hello")},
      {"a hex length", Post("Content-Length: 0x5\r\n", "hello")},
      {"an empty length", Post("Content-Length:\r\n", "hello")},
      {"a length over 64 bits", Post("Content-Length: 18446744073709551617\r\n", "h")},
      {"an unknown coding", Post("Transfer-Encoding: gzip\r\n")},
      {"two codings", Post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")},
      {"chunked twice", Post(chunked + chunked, "0\r\n\r\n")},
      {"chunked then more", Post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n")},
      {"a coding with a control", Post("Transfer-Encoding: \x0b"
                                       "chunked\r\n",
                                       "0\r\n\r\n")},
      {"chunks in 1.0", "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"a chunk size of letters", Post(chunked, "xyz\r\nabc\r\n0\r\n\r\n")},
      {"a chunk size with 0x", Post(chunked, "0x3\r\nabc\r\n0\r\n\r\n")},
      {"a negative chunk size", Post(chunked, "-3\r\nabc\r\n0\r\n\r\n")},
      {"an empty chunk size", Post(chunked, "\r\nabc\r\n0\r\n\r\n")},
      {"a chunk size over 64 bits", Post(chunked, "10000000000000003\r\nabc\r\n0\r\n\r\n")},
      {"a chunk longer than said", Post(chunked, "3\r\nabcd\r\n0\r\n\r\n")},
      {"a chunk size ended by LF", Post(chunked, "3\nabc\r\n0\r\n\r\n")},
      {"a chunk extension with LF", Post(chunked, "3;a=\"\n\"\r\nabc\r\n0\r\n\r\n")},
      {"an endless chunk extension", Post(chunked, "3;" + std::string(40000, 'a'))},
      {"a length in the trailer", Post(chunked, "0\r\nContent-Length: 3\r\n\r\n")},
      {"lines ended by LF", "GET /echo HTTP/1.1\nHost: a\n\n"},
      {"one line ended by LF", "GET /echo HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"},
      {"a CR alone", "GET /echo HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"},
      {"a folded field", Post("X-Long: a\r\n b\r\n")},
      {"a folded first field", "GET /echo HTTP/1.1\r\n Host: a\r\n\r\n"},
      {"NUL in a value", Post("X: a\0b\r\n"s)},
      {"NUL in a name", Post("X\0: b\r\n"s)},
      {"NUL in the path", "GET /ec\0ho HTTP/1.1\r\nHost: a\r\n\r\n"s},
      {"a space before the colon", Post("Content-Length : 5\r\n", "hello")},
      {"a field without a colon", Post("Content-Length\r\n")},
      {"an empty name", Post(": 5\r\n")},
      {"no Host", "GET /echo HTTP/1.1\r\n\r\n"},
      {"two Hosts", "GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {"HTTP/0.9", "GET /echo\r\n\r\n"},
      {"a space in the path", "GET /ec ho HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"no method", " /echo HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"TLS", "\x16\x03\x01\x02\x01\x01"},
      {"a head too long", Post("X: " + std::string(20000, 'x') + "\r\n"), 431},
      {"an endless path", "GET /" + std::string(20000, 'x'), 431},
      {"a body too long", Post("Content-Length: 2000001\r\n"), 413},
      {"chunks too long", Post(chunked, "1e8481\r\n"), 413},
  };
}

// Whatever a proxy could read differently is refused, and nothing after it is taken for a request.
TEST(Requests, BadOnesAreRefusedAndEndTheConnection) {
  ServerRig rig({.limits = {.body_bytes = 2000000}});
  const std::string smuggled = RequestText("GET", "/smuggled");
  for (const Bad& bad : BadRequests()) {
    for (const bool at_once : {true, false}) {
      if (!at_once && bad.bytes.size() > 500) continue;
      SCOPED_TRACE(fmt::format("{}, {}", bad.name, at_once ? "whole" : "byte by byte"));
      Client client(rig.port());
      if (at_once) {
        client.Send(bad.bytes + smuggled);
      } else {
        for (const char c : bad.bytes) client.Send(std::string(1, c));
        client.Send(smuggled);
      }
      const Answer answer = client.ReadAnswer();
      EXPECT_EQ(answer.status, bad.status);
      EXPECT_EQ(answer.Field("Connection"), "close");
      EXPECT_EQ(answer.Field("Content-Type"), "application/json");
      EXPECT_THAT(answer.body,
                  ::testing::MatchesRegex(R"(\{"error":\{"message":"[^"\\]+)"
                                          R"((\\.[^"\\]*)*","type":"[a-z_]+","param":null,)"
                                          R"("code":("[a-z_]+"|null)\}\})"));
      EXPECT_TRUE(client.IsEnded());
    }
  }
  Client client(rig.port());
  client.Get("/echo");
  EXPECT_EQ(client.ReadAnswer().status, 200);
}

// The answer arrives although the client is still sending what was refused.
TEST(Requests, RefusalReachesAClientThatStillSends) {
  ServerRig rig({.limits = {.body_bytes = 1000}});
  Client client(rig.port());
  client.Send(Post("Content-Length: 4000000\r\n"));
  client.Send(std::string(4000000, 'x'));
  EXPECT_EQ(client.ReadAnswer().status, 413);
}

TEST(Requests, LargeBodies) {
  ServerRig rig;
  Client client(rig.port());
  std::string body(5 << 20, 'x');
  for (size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>('a' + i % 23);
  client.Send(RequestText("POST", "/echo", body));
  EXPECT_TRUE(client.ReadAnswer().body == "POST /echo " + body);
  client.Get("/big");
  EXPECT_TRUE(client.ReadAnswer().body == std::string(8 << 20, 'b'));
}

TEST(Requests, SlowOnesTimeOut) {
  ServerRig rig({.limits = {.header_time = milliseconds(200),
                            .body_time = milliseconds(300),
                            .idle_time = milliseconds(400)}});
  Client head(rig.port());
  head.Send("GET /echo HT");
  Client body(rig.port());
  body.Send(Post("Content-Length: 10\r\n", "hal"));
  Client idle(rig.port());
  Client again(rig.port());
  again.Get("/echo");
  EXPECT_EQ(again.ReadAnswer().status, 200);
  Client held(rig.port());  // no limit for the handler's time
  held.Get("/hold", "held");
  rig.Exchange("held");

  const Answer late_head = head.ReadAnswer();
  EXPECT_EQ(late_head.status, 408);
  EXPECT_THAT(late_head.body, HasSubstr("head did not arrive in time"));
  EXPECT_TRUE(head.IsEnded());
  const Answer late_body = body.ReadAnswer();
  EXPECT_EQ(late_body.status, 408);
  EXPECT_THAT(late_body.body, HasSubstr("body did not arrive in time"));
  EXPECT_TRUE(body.IsEnded());
  EXPECT_TRUE(idle.IsEnded());
  EXPECT_TRUE(again.IsEnded());
  head.Close();
  body.Close();
  EXPECT_TRUE(rig.AwaitConnections(1));
  EXPECT_EQ(rig.left(), 0);
}

// A byte now and then does not prolong the head's time.
TEST(Requests, DrippingHeadTimesOut) {
  ServerRig rig({.limits = {.header_time = milliseconds(150)}});
  Client client(rig.port());
  for (int i = 0; i < 40; ++i) {
    client.Send("G");
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(client.ReadAnswer().status, 408);
}

TEST(Requests, TooManyConnections) {
  ServerRig rig({.limits = {.connections = 3}});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(rig.port()));
    clients.back()->Get("/echo");
    EXPECT_EQ(clients.back()->ReadAnswer().status, 200);
  }
  Client fourth(rig.port());
  const Answer answer = fourth.ReadAnswer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("all 3 connections are in use"));
  EXPECT_TRUE(fourth.IsEnded());
  fourth.Close();
  clients.pop_back();
  EXPECT_TRUE(rig.AwaitConnections(2));
  Client fifth(rig.port());
  fifth.Get("/echo");
  EXPECT_EQ(fifth.ReadAnswer().status, 200);
}

}  // namespace
}  // namespace spry
